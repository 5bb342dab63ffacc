"""The README: short, and true."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from importlib.metadata import metadata

from markdown_it import MarkdownIt
from packaging.requirements import Requirement

from bench.faults import CORPORA
from tests.contract.pages import DOCS, ROOT, examples, read
from tests.contract.workflow_files import example
from tools.pictures.__main__ import IMAGES, MOST_BYTES, NAMES

README = ROOT / "README.md"
MOST_LINES = 130
BLIND = {"faults_second.json": "second", "faults_ppo_blind.json": "ppo_blind"}
FIRST_RUN = (52, 48, 41)
"""Faults of `blind`, how many its first run caught, and how many it named."""
HEALTHY = {
    "faults.json": "benign",
    "faults_ppo.json": "ppo_benign",
    "faults_ppo_blind.json": "ppo_blind_benign",
}


def test_ci_runs_its_commands_as_they_stand() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    for command in ("make demo", "make test"):
        assert f"\n{command}" in read(README)
        assert f"\n{command}\n" in script


def test_the_install_line_names_this_package_and_an_extra_that_it_has() -> None:
    (quoted,) = re.findall(r'^pip install "(.*)"$', read(README), flags=re.MULTILINE)
    wanted = Requirement(quoted.replace("URL", "https://example.com/canary.git"))
    assert wanted.name == metadata("rlhf-canary")["Name"]
    assert wanted.extras <= set(metadata("rlhf-canary").get_all("Provides-Extra") or ())
    assert wanted.url == "git+https://example.com/canary.git"


def _rows(file: str, corpus: str) -> list[dict[str, object]]:
    rows = json.loads((DOCS / file).read_text(encoding="utf-8"))["rows"]
    return [row for row in rows if row["corpus"] == corpus]


def test_its_evidence_is_that_of_the_figures() -> None:
    blind = [row for file, corpus in BLIND.items() for row in _rows(file, corpus)]
    healthy = [row for file, corpus in HEALTHY.items() for row in _rows(file, corpus)]
    assert len(blind) == sum(len(CORPORA[corpus]) for corpus in BLIND.values())
    asked, caught, named = FIRST_RUN
    assert f"In the very first run {caught} of the {asked} were" in read(DOCS / "figures.md")
    asked += len(blind)
    caught += sum(bool(row["caught"]) for row in blind)
    named += sum(bool(row["caught"] and row["right"]) for row in blind)
    failed = sum(row["verdict"] in ("regression", "changed", "error") for row in healthy)
    text = read(README)
    assert f"{caught} of {asked} caught, {named} of {asked} with the right cause" in text
    assert f"{failed} of {len(healthy)} failed" in text


class _Pictures(HTMLParser):
    """The `img` and `source` tags of a page, each with its attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.images: list[dict[str, str]] = []
        self.sources: list[dict[str, str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {"img": self.images, "source": self.sources}.get(tag)
        if found is not None:
            found.append({name: value or "" for name, value in attrs})


def _pictures() -> _Pictures:
    return _Pictures(MarkdownIt("commonmark", {"html": True}).enable("table").render(read(README)))


def test_its_pictures_are_those_that_the_tool_draws_and_small() -> None:
    shown = _pictures()
    files = [image["src"] for image in shown.images] + [one["srcset"] for one in shown.sources]
    drawn = sorted((DOCS / "images").iterdir())
    assert sorted(ROOT / file for file in files) == drawn == sorted(IMAGES / name for name in NAMES)
    assert all(10_000 < file.stat().st_size <= MOST_BYTES for file in drawn)


def test_every_picture_says_in_words_what_it_shows() -> None:
    for image in _pictures().images:
        assert len(image.get("alt", "").split()) > 8, image


def test_its_workflow_is_what_init_writes_for_a_hosted_runner() -> None:
    """Which is checked with the other examples."""
    (workflow,) = examples(README, "yaml")
    assert workflow == example("hosted")


def test_it_is_short() -> None:
    assert len(read(README).splitlines()) <= MOST_LINES
