"""What a row is planted into: the files and the command of one training, clean or changed."""

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
SCRIPT_STEPS = 10
CANARY = (sys.executable, "-m", "canary.cli")


@dataclass(frozen=True)
class Training:
    """One run: a base with a row's change in it, or without."""

    base: str
    row: Row | None = None
    """The change; None for the clean training."""
    pair: str = ""
    """Which of several equal runs it is."""
    probe: bool = True
    """Whether it has the launch that takes the exact signals."""

    def write(self, folder: Path) -> tuple[str, ...]:
        """Writes what the training needs into its working directory; returns its command.

        Records lie under `runs` there. Names of files and folders say nothing of the change.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if self.base in SCRIPTS:
            return self._exec(folder)
        row = self.row or Row("", "", self.base, None)
        plant(folder, row.plant or "pass", row.before or "pass")
        text = row.yaml or yaml.safe_dump({**BUILT_IN[self.base], **row.config})
        (folder / "canary.yaml").write_text(text)
        probe = () if self.probe else ("--set", "probe_steps=0")
        return (*CANARY, "run", "canary.yaml", "--quiet", "-o", "runs", *probe)

    def _exec(self, folder: Path) -> tuple[str, ...]:
        change = self.row.plant if self.row else ""
        if self.base == "own_sft":
            write_data(folder)
            sft_script(folder, steps=SCRIPT_STEPS, before=change)
            command: tuple[str, ...] = (sys.executable, "train.py")
        else:
            command = rank_script(folder, steps=SCRIPT_STEPS, before=change)
        probe = () if self.probe else ("--no-probe",)
        return (*CANARY, "exec", "--name", "own", "-o", "runs", *probe, "--", *command)

    def environment(self) -> dict[str, str]:
        """Variables of the process beyond those of this one."""
        common = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
        if self.base in SCRIPTS:
            common["OMP_NUM_THREADS"] = "1"
        return common | dict(self.row.environment if self.row else {})


def digest(training: Training) -> str:
    """Twelve letters that name a training by all that decides it: files, command, environment.

    The same for a checkout in another place.
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
