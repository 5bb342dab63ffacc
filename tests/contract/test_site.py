"""The documentation site: every page is in it, links that leave the docs lead to the repository,
and versions are kept apart. What needs the extra `docs` runs in `make docs` alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.contract.git_server import git
from tests.contract.pages import DOCS, ROOT
from tools.site import BrokenLink, as_page, led_outside, reference

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def nav(entry: Any) -> list[str]:
    """The pages of a part of the navigation."""
    if isinstance(entry, str):
        return [entry]
    inner = entry.values() if isinstance(entry, dict) else entry
    return [page for one in inner for page in nav(one)]


def test_every_page_is_in_the_navigation_once() -> None:
    # The tags name functions of Python, which the parts read here do not use.
    text = re.sub(r"!!python\S+", "", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    found = nav(yaml.safe_load(text)["nav"])
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    pages |= {f"notebooks/{one.stem}.md" for one in NOTEBOOKS} | {"reference/python.md"}
    assert sorted(found) == sorted(pages)


@pytest.mark.parametrize(
    ("link", "leads"),
    [
        ("](../examples/loop.py)", "/blob/main/examples/loop.py)"),
        ("](../examples/workflows)", "/tree/main/examples/workflows)"),
        ("](../notebooks/01_quickstart.ipynb)", "](notebooks/01_quickstart.md)"),
        ("](verdict.md#limits)", "](verdict.md#limits)"),
        ("](https://example.org/a.md)", "](https://example.org/a.md)"),
        ("](#limits)", "](#limits)"),
    ],
)
def test_a_link_leads_to_the_site_or_to_the_repository(link: str, leads: str) -> None:
    assert led_outside(f"see [it{link}.", DOCS / "page.md").endswith(f"{leads}.")


def test_a_link_to_nothing_ends_the_build() -> None:
    with pytest.raises(BrokenLink, match=r"docs/page.md links to \.\./nothing.py"):
        led_outside("[it](../nothing.py)", DOCS / "page.md")


def test_the_reference_has_every_name_of_the_api_page() -> None:
    assert "::: canary.compare.stats.compare_to_baseline\n" in reference()
    assert "::: canary.Recorder\n" in reference()


def test_a_page_asks_no_other_server_for_anything() -> None:
    """With `repo_url`, the theme's script asks GitHub for stars; `font` loads from Google."""
    read = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert not re.search(r"(?m)^(repo_url|extra_css|extra_javascript):|analytics|polyfills", read)
    assert "font: false" in read


def test_a_notebook_is_a_page_with_its_outputs() -> None:
    pytest.importorskip("nbconvert", reason="make docs installs it")
    page = as_page(NOTEBOOKS[0])
    assert re.match(r"# 1\. .*\n\n.*\(https://colab\.\S+/blob/main/\S+\)\n\n\*\*What", page)
    assert "<svg " in page


@pytest.mark.slow
def test_versions_of_the_site_are_kept_apart(tmp_path: Path) -> None:
    pytest.importorskip("mike", reason="make docs installs it")
    bare, work = tmp_path / "remote.git", tmp_path / "work"
    git(tmp_path, "init", "-q", "--bare", "-b", "main", str(bare))
    git(tmp_path, "init", "-q", "-b", "main", str(work))
    (work / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "publish_docs.sh", work / "scripts")
    (work / "docs").mkdir()
    (work / "docs" / "index.md").write_text("# Here\n")
    (work / "mkdocs.yml").write_text("site_name: here\nplugins: [mike]\n")
    (work / ".venv").mkdir()
    (work / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    git(work, "add", "docs", "mkdocs.yml", "scripts")
    git(work, "commit", "-qm", "first")
    git(work, "remote", "add", "origin", str(bare))

    def publish(*words: str) -> subprocess.CompletedProcess[str]:
        roles, keys = ("AUTHOR", "COMMITTER"), ("NAME", "EMAIL")
        who = {f"GIT_{role}_{key}": "t@t" for role in roles for key in keys}
        return subprocess.run(
            ["bash", "scripts/publish_docs.sh", *words],
            cwd=work,
            env={**os.environ, **who},
            capture_output=True,
            text=True,
            check=False,
        )

    for version in ("dev", "1.2.3"):
        done = publish(version)
        assert done.returncode == 0, done.stdout + done.stderr
    there = set(git(bare, "ls-tree", "--name-only", "gh-pages").splitlines())
    assert {"dev", "1.2", "latest", "versions.json", "index.html"} <= there
    done = publish("--commit", "1.3.0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1.3" not in git(bare, "ls-tree", "--name-only", "gh-pages").splitlines()
    shutil.rmtree(work / "docs")
    (work / ".venv" / "bin").unlink()
    assert publish("--push", "1.3.0").returncode == 0, "it needs no package"
    assert "1.3" in git(bare, "ls-tree", "--name-only", "gh-pages").splitlines()
    assert publish("1.2.3; rm -rf x").returncode == 1


def test_the_job_that_may_write_runs_no_package() -> None:
    """mkdocs and its plugins are others' code: they must not see a token that can push to main."""
    file = ROOT / ".github" / "workflows" / "docs.yml"
    jobs = yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"]
    for job in jobs.values():
        shell = "\n".join(step.get("run", "") for step in job["steps"])
        runs_packages = bool(re.search(r"\b(make|pip|python|mike|mkdocs|--commit)\b", shell))
        writes = "write" in job["permissions"].values()
        assert runs_packages != writes
        assert writes or "GH_TOKEN" not in yaml.safe_dump(job)
