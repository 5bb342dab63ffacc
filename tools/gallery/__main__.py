"""Make the gallery of incidents in docs/gallery from real runs: a quarter of an hour on two cores.

    python -m tools.gallery
    python -m tools.gallery --only eos-not-trained -o build/gallery

Each incident trains the embedded model before and after a change of the fault corpora, one process
at a time. The pages take verdict, comment, charts and cause from these runs. If a run says
something else than its story, the program writes no page of it and ends with exit code 1.

`--keep DIR` keeps the runs there, and trains only incidents that are missing there. `--words`
trains nothing: it writes the pages anew from the stored facts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from canary.errors import CanaryError
from canary.runner.warm import warm_starts
from tools.gallery.facts import read_facts
from tools.gallery.making import NotMade, make
from tools.gallery.pages import index_text, page_text
from tools.gallery.stories import Story, read_stories
from tools.pictures.recorded_demo import ROOT

GALLERY = ROOT / "docs" / "gallery"
INDEX = "README.md"


def say(line: str) -> None:
    """Print a line on standard error."""
    print(line, file=sys.stderr, flush=True)


def write_pages(stories: Sequence[Story], output: Path) -> None:
    """Write every page whose facts are stored, and the index."""
    stored = [
        (story, read_facts(path))
        for story in stories
        if (path := output / f"{story.name}.json").exists()
    ]
    for story, facts in stored:
        _write(output / f"{story.name}.md", page_text(story, facts))
    if stored:
        _write(output / INDEX, index_text(stored))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    print(path.name)


def chosen(stories: Sequence[Story], names: Sequence[str]) -> list[Story]:
    """Return the named stories, all without names. Raises SystemExit for an unknown name."""
    unknown = sorted(set(names) - {story.name for story in stories})
    if unknown:
        known = ", ".join(story.name for story in stories)
        raise SystemExit(f"no incident {', '.join(unknown)}; there are {known}")
    return [story for story in stories if not names or story.name in names]


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the chosen incidents; return 1 if one of them could not be made."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.gallery",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="these incidents")
    parser.add_argument("-o", "--output", type=Path, default=GALLERY, help="folder [docs/gallery]")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep runs, train missing ones")
    parser.add_argument("--words", action="store_true", help="train nothing, write pages anew")
    given = parser.parse_args(arguments)
    stories = read_stories()
    wanted = [] if given.words else chosen(stories, given.only)
    given.output.mkdir(parents=True, exist_ok=True)
    problems = []
    with tempfile.TemporaryDirectory() as passing, warm_starts():
        kept = (given.keep or Path(passing)).absolute()
        for number, story in enumerate(wanted, start=1):
            say(f"{number} of {len(wanted)}: {story.name}")
            try:
                make(story, kept, given.output, say)
            except (NotMade, CanaryError) as problem:
                problems.append(f"{story.name}: {problem}")
                say(f"error: {problems[-1]}")
    write_pages(stories, given.output)
    for told in problems:
        say(f"not made: {told}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
