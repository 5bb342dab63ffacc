"""The help fits one screen, and a verb whose extra is not installed says what to install."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from canary.cli import app

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "baselines" / "examples"
EXPLAINED = [str(RECORDED / "explained" / f"{side}.json") for side in ("current", "baseline")]
LOGGED = str(ROOT / "tests" / "data" / "imports" / "presets" / "lightning")

WITHOUT = """
import importlib.machinery, sys

EXTRAS = ("accelerate altair datasets huggingface_hub numpy pandas peft ray ruptures scipy "
          "submitit tensorboard torch transformers trl vl_convert").split()

class Core(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        installed = name.partition(".")[0] not in EXTRAS
        return super().find_spec(name, path, target) if installed else None

sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Core
import contextlib, io, json
from canary.cli import main

said = []
for words in json.loads(sys.argv[1]):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            main(words)
        except SystemExit as done:
            said.append([done.code, err.getvalue()])
print(json.dumps(said))
"""
SIDES = [str(RECORDED / name) for name in ("sft_smoke_again.json", "sft_smoke.json")]
VERBS = [
    (["demo"], 2, "rlhf-canary[train]"),
    (["report", *EXPLAINED], 4, "needs the extra `report`"),
    (["serve", "."], 4, "needs the extra `report`"),
    (["history", str(RECORDED)], 4, "rlhf-canary[history]"),
    (["import", LOGGED], 2, "pip install tensorboard"),
    (["matrix", "slurm.yaml"], 2, "rlhf-canary[slurm]"),
    (["matrix", "ray.yaml"], 2, "rlhf-canary[ray]"),
    *((words, 0, "") for words in (["--help"], ["--version"], ["env"])),
    *(([verb, "--help"], 0, "") for verb in ("run", "ab", "ladder", "history")),
    *((["config", verb], 0, "") for verb in ("show", "schema")),
    *((["compare", *SIDES, "--format", kind], 0, "") for kind in ("text", "markdown", "json")),
    (["init"], 0, ""),
]


def test_a_verb_without_its_extra_names_it_and_the_others_need_none(tmp_path: Path) -> None:
    for kind in ("ray", "slurm"):
        matrix = f"matrix:\n  config: [configs/sft_smoke.yaml]\nlauncher: {{kind: {kind}}}\n"
        (tmp_path / f"{kind}.yaml").write_text(matrix, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, json.dumps([words for words, _, _ in VERBS])],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.splitlines()[-1])
    for (words, code, says), (ended, text) in zip(VERBS, answers, strict=True):
        assert ended == code, (words, text)
        last = (text.splitlines() or [""])[-1]
        assert says in last, words
        assert "unexpected" not in last, words


MOST_VERBS = 20
PLUMBING = ("gate", "config", "env", "list")


def shown() -> set[str]:
    text = CliRunner().invoke(app, ["--help"]).output.partition("Begin:")[2]
    return {line.split()[0] for line in text.splitlines() if line.startswith("  ")} - {"More:"}


def test_help_shows_at_most_twenty_verbs_and_no_plumbing() -> None:
    assert len(shown()) <= MOST_VERBS
    assert not shown() & set(PLUMBING)
