"""The README: short, and true."""

from __future__ import annotations

import json
import re
from importlib.metadata import metadata
from pathlib import Path

from packaging.requirements import Requirement

from bench.faults import CORPORA
from tests.contract.pages import DOCS, ROOT, examples, links, read
from tests.contract.pasted_workflow import checked

README = ROOT / "README.md"
BLIND = {
    "faults.json": "blind",
    "faults_second.json": "second",
    "faults_ppo_blind.json": "ppo_blind",
}
HEALTHY = {
    "faults.json": "benign",
    "faults_ppo.json": "ppo_benign",
    "faults_ppo_blind.json": "ppo_blind_benign",
}


def test_it_stays_short() -> None:
    assert len(read(README).splitlines()) <= 200


def test_ci_runs_its_commands_as_they_stand() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    for command in ("make demo", "make test-all"):
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
    caught = sum(bool(row["caught"]) for row in blind)
    named = sum(bool(row["caught"] and row["right"]) for row in blind)
    failed = sum(row["verdict"] in ("regression", "changed", "error") for row in healthy)
    text = read(README)
    assert f"{caught} of {len(blind)} caught, {named} of {len(blind)} with the right cause" in text
    assert f"{failed} of {len(healthy)} failed" in text


def test_its_picture_is_small() -> None:
    (picture,) = [link for link in links(read(README)) if link.endswith(".png")]
    assert 10_000 < (ROOT / picture).stat().st_size < 150_000


def test_its_workflow_is_valid_pinned_and_safe(tmp_path: Path) -> None:
    (workflow,) = examples(README, "yaml")
    checked(workflow, tmp_path)
