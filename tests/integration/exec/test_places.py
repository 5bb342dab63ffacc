"""The place of a difference between two commits is the changed line that ran, in any file."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from canary.compare.diagnosis.source_changes import source_between
from canary.compare.place_words import only, sentence
from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.record.types import RunRecord
from tests.integration.exec.user_scripts import PYTHON, watched

pytestmark = pytest.mark.train

TRAIN = """
import sys
import time

import torch
from torch.utils.data import DataLoader
from lib.rows import Rows, prepared
import lib.losses as losses

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Embedding(50, 16), torch.nn.Linear(16, 50))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
rows = prepared([list(range(i, i + 17)) for i in range(20)])
for step, (x, y) in enumerate(DataLoader(Rows(rows), batch_size=4)):
    if step == 20:
        break
    logits = model(x)
    loss = losses.of(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
"""
ROWS = '''"""The data set."""

import torch
from torch.utils.data import IterableDataset


def prepared(rows):
    return [[token % 50 for token in row] for row in rows]


def never_called(rows):
    return rows[1:]


class Rows(IterableDataset):
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        while True:
            for row in self.rows:
                chunk = torch.tensor(row)
                yield chunk[:-1], chunk[1:]
'''
LOSSES = """
import torch


def of(logits, labels):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
"""
FILES = {"train.py": TRAIN, "lib/rows.py": ROWS, "lib/losses.py": LOSSES, "lib/__init__.py": ""}
Compare = Callable[..., Comparison]


@pytest.fixture(scope="module")
def compare(tmp_path_factory: pytest.TempPathFactory) -> Compare:
    """Compare a changed repository with the first commit, by one training of each."""
    folder = tmp_path_factory.mktemp("places")
    (folder / ".gitignore").write_text("runs/\n__pycache__/\n")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "init", "-q", "-b", "main")
    before = committed(folder)

    def compared(*edits: tuple[str, str, str]) -> Comparison:
        for name, old, new in edits:
            text = (folder / name).read_text()
            assert text.count(old) == 1
            (folder / name).write_text(text.replace(old, new))
        now = committed(folder)
        git(folder, "reset", "-q", "--hard", str(before.git["sha"]))
        source = source_between(folder, before, now)
        return compare_to_baseline(now, before, source=source)

    return compared


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=one", "-c", "user.email=one@example.com")
    subprocess.run(["git", *identity, *words], cwd=folder, check=True)


def committed(folder: Path) -> RunRecord:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "a change")
    ended = watched(folder, PYTHON, "train.py", options=("--exact", "-q"))
    assert ended.code == 0, ended.err
    return ended.record()


def test_a_changed_data_set_in_another_file_is_the_only_place(compare: Compare) -> None:
    """The pull request also changes a comment, and a function that nothing calls."""
    found = compare(
        ("lib/rows.py", "yield chunk[:-1], chunk[1:]", "yield chunk[:-1], chunk[:-1]"),
        ("lib/losses.py", "def of(", "# of a step\ndef of("),
    )
    assert found.verdict == "changed", "a model without `generate` may read its own tokens"
    assert found.check("next_token").status == "inconclusive"
    assert found.first_difference is not None
    assert found.first_difference.stage == "batches"
    (place,) = found.places.ran
    words = (
        "lib/rows.py:23 in Rows.__iter__: yield chunk[:-1], chunk[1:] -> yield chunk[:-1], chunk["
    )
    assert sentence(place).startswith(words)
    assert only(found.places).startswith("the only changed code")


def test_a_lost_line_stands_before_sorted_imports(compare: Compare) -> None:
    found = compare(
        ("train.py", "import sys\nimport time\n", "import time\nimport sys\n"),
        ("train.py", "    optimizer.zero_grad()\n", ""),
    )
    assert found.verdict == "regression"
    assert found.check("gradients_start_empty").status == "fail"
    assert "removed: optimizer.zero_grad()" in sentence(found.places.ran[0])


def test_places_of_several_files_are_ordered_by_the_first_difference(compare: Compare) -> None:
    found = compare(
        ("lib/rows.py", "for token in row]", "for token in row if token >= 0]"),
        ("lib/losses.py", "labels.flatten())", "labels.flatten(), label_smoothing=0.1)"),
    )
    assert found.first_line.startswith("Changed: the loss differs from step 1")
    assert [place.name for place in found.places.ran] == ["lib/losses.py", "lib/rows.py"]


def test_code_that_learns_the_same_passes_without_a_look_at_the_clock(compare: Compare) -> None:
    found = compare(("lib/losses.py", "def of(logits", "def of(  # a comment\n    logits"))
    assert found.verdict == "pass", found.first_line
    found = compare(
        ("lib/losses.py", "return torch", "result = torch"),
        ("lib/losses.py", "en())\n", "en())\n    return result\n"),
    )
    assert found.verdict == "pass", found.first_line
