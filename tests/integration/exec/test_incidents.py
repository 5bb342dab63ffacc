"""Incidents from public reports: the answer names the changed line, and why. One line each."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from canary.compare.diagnosis.source_changes import SourceChanges, source_between
from canary.compare.place_words import sentence
from canary.compare.report import Comparison
from canary.compare.rules import answers
from canary.compare.stats import compare_to_baseline
from canary.record.types import RunRecord
from canary.report.render import answer
from tests.integration.exec.user_scripts import PYTHON, watched

pytestmark = [pytest.mark.train, pytest.mark.slow]

SCRIPTS = Path(__file__).parent / "incidents"
DOCS = Path(__file__).parents[3] / "docs" / "diagnosis.md"
SHOWN = re.compile(r"(<!-- incidents -->\n)(.*?)(<!-- end of incidents -->)", re.DOTALL)
CLIP = "            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)\n"
STEP = "            optimizer.step()\n"
SLOW_DISK = "        if i % 16 < 4:\n            time.sleep(0.2)\n"


@dataclass(frozen=True)
class Incident:
    """A change of one script, and what is right to say of it."""

    script: str
    category: str
    """Empty for a change that does not matter."""
    place: str
    """Of the changed line that is named first."""
    edits: tuple[tuple[str, str], ...]
    says: str = ""
    """Of the first cause: what happened."""
    rule: str = ""
    """What the changed script alone answers: the rule, and whether it is broken or a note."""
    title: str = ""
    """What happens, in docs/diagnosis.md; empty if it is not shown there."""


INCIDENTS = {
    "frozen_adapter": Incident(
        "grpo", "adapter", 'PeftModel.from_pretrained(model(tok), "adapter")',
        ((", is_trainable=True", ""),), "so nothing is trained",
        rule="trainable_changed: broken",
        title="An adapter is loaded for inference",
    ),
    "reward_pattern": Incident(
        "grpo", "rollout", "re.compile", ((", re.DOTALL", ""),), rule="each_reward_varies: note",
        title="A pattern of the reward no longer matches over lines",
    ),
    "bf16_weights": Incident(
        "loop", "numerics", ".to(torch.bfloat16)",
        (
            ("model = model(tok)", "model = model(tok).to(torch.bfloat16)"),
            ('        with torch.autocast("cpu", dtype=torch.bfloat16):\n    ', ""),
        ),
        rule="trainable_changed: note",
    ),
    "worker_generator": Incident(
        "loop", "data", "self.rng",
        (
            ("self.rows = ", "self.rng = numpy.random.default_rng(0)\n        self.rows = "),
            ("numpy.random.random(", "self.rng.random("),
        ),
        "same sizes, but other tokens",
        rule="worker_draws: broken",
        title="All data workers draw the same numbers",
    ),
    "clip_after_step": Incident(
        "loop", "optimizer", "clip_grad_norm_", ((CLIP + STEP, STEP + CLIP),),
        "the clip comes after it",
        rule="clip_before_step: broken",
    ),
    "no_zero_grad": Incident(
        "loop", "optimizer", "removed: optimizer.zero_grad()",
        (("            optimizer.zero_grad()\n", ""),), "is not set to zero in between",
        rule="gradients_start_empty: broken",
        title="Gradients are never set to zero",
    ),
    "schedule_length": Incident(
        "loop", "optimizer", "total = EPOCHS", ((" // ACCUMULATE\nsched", "\nsched"),),
        rule="schedule_length: note",
    ),
    "no_bos": Incident(
        "encoded", "tokenization", "removeprefix",
        (("text.strip()", "text.removeprefix(tok.bos_token).strip()"),),
        rule="bos_as_tokenized: broken",
        title="A text is tokenized without BOS",
    ),
    "template_drops_thought": Incident(
        "sft", "tokenization", "split('</think>')",
        (('{{ m.content }}"\n', "{{ m.content.split('</think>')[-1].strip() }}\"\n"),),
    ),
    "new_token_frozen": Incident(
        "sft", "adapter", "modules_to_save",
        (('    modules_to_save=["embed_tokens", "lm_head"],\n', ""),),
        "No longer trained: lm_head.modules_to_save",
        rule="new_tokens_train: broken",
        title="Embeddings of added tokens no longer train",
    ),
    "slow_worker": Incident(
        "loop", "", "",
        (
            ("import torch\n", "import time\n\nimport torch\n"),
            ("        ids = torch.tensor(", SLOW_DISK + "        ids = torch.tensor("),
        ),
    ),
}  # fmt: skip
Compare = Callable[[str], Comparison]


@dataclass(frozen=True)
class Runs:
    """The scripts' records, each trained once."""

    changed: Callable[[str], tuple[RunRecord, RunRecord, SourceChanges]]
    """Of an incident: before, now, and what the commits changed."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The scripts of the first commit, and each as an incident changes it."""
    folder = tmp_path_factory.mktemp("incidents") / "repository"
    shutil.copytree(SCRIPTS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / ".gitignore").write_text("runs/\nadapter/\nout/\n__pycache__/\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "a training that works")

    def trained(script: str) -> RunRecord:
        ended = watched(folder, PYTHON, f"{script}.py", options=("--exact", "-q"))
        assert ended.code == 0, ended.err
        return ended.record()

    healthy = functools.cache(trained)

    @functools.cache
    def changed(name: str) -> tuple[RunRecord, RunRecord, SourceChanges]:
        incident = INCIDENTS[name]
        before = healthy(incident.script)
        path = folder / f"{incident.script}.py"
        text = path.read_text()
        for old, new in incident.edits:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        path.write_text(text)
        git(folder, "commit", "-q", "-a", "-m", "a change")
        now = trained(incident.script)
        source = source_between(folder, before, now)
        git(folder, "reset", "-q", "--hard", "HEAD~1")
        return before, now, source

    return Runs(changed)


@pytest.fixture(scope="module")
def compare(runs: Runs) -> Compare:
    """Compare a changed script with the first commit."""

    def compared(name: str) -> Comparison:
        before, now, source = runs.changed(name)
        return compare_to_baseline(now, before, source=source)

    return functools.cache(compared)


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=one", "-c", "user.email=one@example.com")
    subprocess.run(["git", *identity, *words], cwd=folder, check=True)


def said(found: Comparison) -> str:
    """Return every sentence and advice of an answer."""
    sentences = [found.first_line, *found.notes, *(check.message for check in found.checks)]
    for suspect in found.diagnosis.suspects:
        sentences += [suspect.description, *suspect.suggested_actions]
        sentences += [str(evidence) for evidence in suspect.evidence]
    return "\n".join(sentences)


@pytest.mark.parametrize("name", [name for name, one in INCIDENTS.items() if one.category])
def test_an_incident_is_placed_and_named(name: str, compare: Compare) -> None:
    incident, found = INCIDENTS[name], compare(name)
    assert found.verdict in ("changed", "regression"), found.first_line
    place = sentence(found.places.ran[0])
    assert place.startswith(f"{incident.script}.py:"), place
    assert incident.place in place
    assert found.diagnosis.top_suspect is not None
    assert found.diagnosis.top_suspect.category == incident.category, found.diagnosis.top_suspect
    assert incident.says in found.diagnosis.top_suspect.description


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("worker_generator", "memory"),
        ("clip_after_step", "max_grad_norm back"),
        ("no_bos", "without (adding|special)|special_tokens=False"),
        ("template_drops_thought", "trained on completely"),
    ],
)
def test_no_sentence_says_what_the_fault_did(name: str, pattern: str, compare: Compare) -> None:
    text = said(compare(name))
    assert not re.search(pattern, text, re.IGNORECASE), text


def test_workers_that_finish_out_of_order_change_nothing(compare: Compare) -> None:
    found = compare("slow_worker")
    assert found.verdict == "pass", found.first_line
    assert "tensors" not in found.first_line
    assert not found.diagnosis.suspects


@pytest.mark.parametrize("name", list(INCIDENTS))
def test_the_changed_script_alone_says_what_is_wrong(name: str, runs: Runs) -> None:
    before, now, _ = runs.changed(name)
    assert {rule.id for rule, said in answers(before) if said.is_against} == set()
    against = {rule.id: said.status for rule, said in answers(now) if said.is_against}
    rule, _, status = INCIDENTS[name].rule.partition(": ")
    assert against.get(rule) == (status or None)
    assert rule or not against


def test_the_docs_show_what_is_answered(compare: Compare) -> None:
    """`UPDATE_GOLDEN=1` writes it."""
    shown = "\n".join(
        f"**{one.title}**\n\n```text\n{answer(compare(name)).strip()}\n```\n"
        for name, one in INCIDENTS.items()
        if one.title
    )
    text = DOCS.read_text(encoding="utf-8")
    if os.environ.get("UPDATE_GOLDEN"):
        DOCS.write_text(SHOWN.sub(lambda m: f"{m[1]}\n{shown}\n{m[3]}", text), encoding="utf-8")
    found = SHOWN.search(DOCS.read_text(encoding="utf-8"))
    assert found is not None
    assert found[2] == f"\n{shown}\n"
