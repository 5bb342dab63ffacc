"""The files and the command of one training, clean or with a row's change."""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.corpus.row import Row
from canary.inputs.embedded import tiny_dir
from tests.faults.laboratory import CANARIES, PPO, PPO_SIZE, SIZE
from tests.integration.conftest import settings
from tests.integration.exec.user_scripts import sft_script, write_data
from tests.integration.run.rank_scripts import rank_script
from tests.planting import plant

PPO_JUDGED: dict[str, object] = {
    "ppo": PPO | {"reward_model": "embedded/reward", "adap_kl_ctrl": True, "horizon": 400},
    "speed": {"rollout_batch": "micro"},
}
BUILT_IN: dict[str, dict[str, object]] = CANARIES | {
    "dpo_lora": settings("dpo", **SIZE, use_peft=True),
    "ppo_lora": settings("ppo", **PPO_SIZE, ppo=PPO, use_peft=True),
    "ppo_judged": settings("ppo", **PPO_SIZE, **PPO_JUDGED),
}
SCRIPTS = ("own_sft", "own_ranks")
SCRIPT_STEPS = 36
CANARY = (sys.executable, "-m", "canary.cli")


@dataclass(frozen=True)
class Training:
    """One run: a base, with or without a row's change."""

    base: str
    row: Row | None = None
    """The change; None for the clean training."""
    pair: str = ""
    """Names one of several equal runs."""

    def write(self, folder: Path) -> tuple[str, ...]:
        """Write the training's files into its working directory. Return its command.

        Records go to `runs` there. No file or folder name reveals the change.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if self.base in SCRIPTS:
            return self._exec(folder)
        row = self.row or Row("", "", self.base, None)
        plant(folder, row.plant or "pass", row.before or "pass")
        text = row.yaml or yaml.safe_dump({**BUILT_IN[self.base], **row.config})
        (folder / "canary.yaml").write_text(text)
        return (*CANARY, "run", "canary.yaml", "--quiet", "-o", "runs")

    def _exec(self, folder: Path) -> tuple[str, ...]:
        change = self.row.plant if self.row else ""
        if self.base == "own_sft":
            write_data(folder)
            sft_script(folder, steps=SCRIPT_STEPS, before=change)
            command: tuple[str, ...] = (sys.executable, "train.py")
        else:
            command = rank_script(folder, steps=SCRIPT_STEPS, before=change)
        return (*CANARY, "exec", "--name", "own", "-o", "runs", "--", *command)

    def environment(self) -> dict[str, str]:
        """Return the environment variables added to this process's."""
        common = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
        if self.base in SCRIPTS:
            common["OMP_NUM_THREADS"] = "1"
        return common | dict(self.row.environment if self.row else {})


def digest(training: Training) -> str:
    """Return twelve hex digits that identify a training by its files, command and environment.

    They do not depend on the place of the checkout.
    """
    places = {sys.executable.encode(): b"python", str(tiny_dir()).encode(): b"tiny"}
    with tempfile.TemporaryDirectory() as draft:
        command = training.write(Path(draft))
        said = [training.base, training.row and training.row.id, training.pair, command]
        parts = [json.dumps([said, sorted(training.environment().items())]).encode()]
        for path in sorted(Path(draft).rglob("*")):
            if path.is_file():
                parts += [path.relative_to(draft).as_posix().encode(), path.read_bytes()]
    text = b"\0".join(parts)
    for here, anywhere in places.items():
        text = text.replace(here, anywhere)
    return hashlib.sha256(text).hexdigest()[:12]
