"""`python -m tools.site FOLDER`: gather the pages of the documentation site in a folder.

They are those that GitHub shows, the notebooks, and the Python reference, as Markdown. Any
generator of static sites can build them.

A link such as `../examples/loop.py` leads out of the docs: on the site it leads to the repository.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS, NOTEBOOKS = ROOT / "docs", ROOT / "notebooks"
REPOSITORY = "https://github.com/rlhf-canary/rlhf-canary"
LINK = re.compile(r"\]\((?P<path>(?![a-z]+:)[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
IN_TABLE = re.compile(r"^\| ((?:`canary\.[\w.]+`(?:, )?)+) \|", re.MULTILINE)
REFERENCE = """# Python reference

The names of [the Python API](../record.md#from-python), by their docstrings.

"""


class BrokenLink(Exception):
    """A page leads to a file that is not there."""


def gather(folder: Path) -> None:
    """Fill a folder with the pages.

    Raises:
        BrokenLink: a page leads to a file that is not there.
    """
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder)
    for page in folder.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        page.write_text(led_outside(text, DOCS / page.relative_to(folder)), encoding="utf-8")
    (folder / "notebooks").mkdir()
    for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
        page = folder / "notebooks" / f"{notebook.stem}.md"
        page.write_text(as_page(notebook), encoding="utf-8")
    (folder / "reference").mkdir()
    (folder / "reference" / "python.md").write_text(reference(), encoding="utf-8")


def led_outside(text: str, page: Path) -> str:
    """Return a page whose links out of the docs lead to the repository, or to a notebook's page."""

    def led(link: re.Match[str]) -> str:
        target = (page.parent / link["path"]).resolve()
        if not target.exists():
            raise BrokenLink(f"{page.relative_to(ROOT)} links to {link['path']}")
        if target.is_relative_to(DOCS):
            return link[0]
        if target.parent == NOTEBOOKS and target.suffix == ".ipynb":
            up = "../" * (len(page.relative_to(DOCS).parts) - 1)
            return f"]({up}notebooks/{target.stem}.md{link['anchor'] or ''})"
        kind = "tree" if target.is_dir() else "blob"
        place = target.relative_to(ROOT).as_posix()
        return f"]({REPOSITORY}/{kind}/main/{place}{link['anchor'] or ''})"

    return LINK.sub(led, text)


def as_page(notebook: Path) -> str:
    """Return a notebook as a page, with a link to it in the repository and in Colab."""
    import nbformat  # of the extra `docs`, as the next
    from nbconvert import MarkdownExporter

    text, _ = MarkdownExporter().from_notebook_node(nbformat.read(notebook, as_version=4))
    title, _, rest = text.split("\n\n", 2)  # The badge is a picture of another server.
    there = f"rlhf-canary/rlhf-canary/blob/main/notebooks/{notebook.name}"
    colab = f"https://colab.research.google.com/github/{there}"
    links = f"[The notebook](https://github.com/{there}) · [Open it in Colab]({colab})"
    return f"{title}\n\n{links}\n\n{rest}"


def reference() -> str:
    """Return the page of the names in the table of docs/record.md."""
    table = (DOCS / "record.md").read_text(encoding="utf-8")
    names = [name for row in IN_TABLE.findall(table) for name in re.findall(r"[\w.]+", row)]
    return REFERENCE + "\n\n".join(f"::: {name}" for name in names) + "\n"


if __name__ == "__main__":
    try:
        gather(Path(sys.argv[1]))
    except BrokenLink as error:
        sys.exit(f"site: {error}")
