"""A verb whose extra is not installed says what to install."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "baselines" / "examples"
EXPLAINED = [str(RECORDED / "explained" / f"{side}.json") for side in ("current", "baseline")]
LOGGED = str(ROOT / "tests" / "data" / "imports" / "presets" / "lightning")

WITHOUT = """
import importlib.machinery, sys

EXTRAS = ("accelerate altair anyio datasets huggingface_hub numpy pandas peft ray ruptures scipy "
          "starlette submitit tensorboard torch transformers trl uvicorn vl_convert").split()

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
    with contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            main(words)
        except SystemExit as done:
            said.append([done.code, err.getvalue()])
print(json.dumps(said))
"""
VERBS = [
    (["demo"], 2, "rlhf-canary[train]"),
    (["report", *EXPLAINED], 4, "needs the extra `report`"),
    (["serve", "."], 4, "need the extra `serve`"),
    (["history", str(RECORDED)], 4, "rlhf-canary[history]"),
    (["import", LOGGED], 2, "pip install tensorboard"),
    (["matrix", "slurm.yaml"], 2, "rlhf-canary[slurm]"),
    (["matrix", "ray.yaml"], 2, "rlhf-canary[ray]"),
]


def test_a_verb_without_its_extra_names_it(tmp_path: Path) -> None:
    for kind in ("ray", "slurm"):
        matrix = f"matrix:\n  config: [configs/sft_smoke.yaml]\nlauncher: {{kind: {kind}}}\n"
        (tmp_path / f"{kind}.yaml").write_text(matrix, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, json.dumps([words for words, _, _ in VERBS])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.splitlines()[-1])
    for (words, code, says), (ended, text) in zip(VERBS, answers, strict=True):
        assert ended == code, (words, text)
        *_, last = text.splitlines()
        assert says in last, words
        assert "unexpected" not in last, words
