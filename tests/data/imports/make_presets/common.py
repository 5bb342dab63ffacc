"""Plausible curves, and the record of what a reader has to find in each output."""

from __future__ import annotations

import json
import math
import random
import re
import shutil
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

DATA = Path(__file__).parent.parent
PRESETS = DATA / "presets"
STORES = DATA / "stores"
GIB = 1024**3


def fresh(*parts: str, root: Path = PRESETS) -> Path:
    """An empty folder below `root`."""
    folder = root.joinpath(*parts)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def falling(seed: str, count: int, start: float, end: float, rough: float = 0.02) -> list[float]:
    """`count` values from `start` towards `end`, each off by about `rough` of itself."""
    source = random.Random(seed)
    rate = 3.0 / max(1, count - 1)
    return [
        (end + (start - end) * math.exp(-rate * index)) * (1 + rough * source.gauss(0, 1))
        for index in range(count)
    ]


def around(seed: str, count: int, middle: float, rough: float = 0.03) -> list[float]:
    """`count` values about `middle`."""
    source = random.Random(seed)
    return [middle * (1 + rough * source.gauss(0, 1)) for _ in range(count)]


def single(value: float) -> float:
    """`value` as TensorBoard keeps it: in single precision."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


@dataclass
class Output:
    """What a reader has to find in one output of a framework."""

    path: str
    """File or folder, below the folder of the framework."""
    format: str
    made_by: str
    steps: list[int]
    """The training steps, in order."""
    preset: str | None = None
    """The framework whose names stand in it, where the folder does not say it."""
    note: str | None = None
    metrics: dict[str, dict[str, object]] = field(default_factory=dict)

    def has(
        self,
        ours: str,
        name: str,
        values: Sequence[float],
        scale: float = 1.0,
        written: Callable[[float], float] = float,
        last_any_of: Sequence[float] = (),
    ) -> None:
        """The metric `ours` stands under `name`; `values` are what the writer was given.

        `written` is what the format does to a value (rounding), `scale` makes our unit of it.
        `count` counts steps. `last_any_of` has all values of the last step, where it has several.
        """
        self.metrics[ours] = {
            "name": name,
            "first": written(values[0]) * scale,
            "last": written(values[-1]) * scale,
            "count": len(values),
        }
        if last_any_of:
            self.metrics[ours]["last_any_of"] = [written(value) * scale for value in last_any_of]

    def as_json(self) -> dict[str, object]:
        told: dict[str, object] = {"path": self.path, "format": self.format}
        if self.preset:
            told["preset"] = self.preset
        told |= {
            "steps": len(self.steps),
            "first_step": self.steps[0],
            "last_step": self.steps[-1],
            "made_by": self.made_by,
        }
        if self.note:
            told["note"] = self.note
        return told | {"metrics": self.metrics}


def write_expected(framework: str, outputs: list[Output], root: Path = PRESETS) -> None:
    """Writes `expected.json` of one framework."""
    text = json.dumps([output.as_json() for output in outputs], indent=1)
    (root / framework / "expected.json").write_text(text + "\n")


def hide_host(folder: Path) -> None:
    """Event files are named after the machine and the process: takes both out of the names."""
    for index, path in enumerate(sorted(folder.rglob("events.out.tfevents.*"))):
        started = re.findall(r"tfevents\.(\d+)", path.name)[0]
        suffix = ".v2" if path.name.endswith(".v2") else ""
        path.rename(path.with_name(f"events.out.tfevents.{started}.host.1.{index}{suffix}"))


def ray(lines: str, actor: str, pid: int) -> str:
    """`lines` as Ray forwards them to the driver: each with a coloured prefix."""
    return "".join(f"\x1b[36m({actor} pid={pid})\x1b[0m {line}\n" for line in lines.splitlines())


def bar(text: str, done: int, total: int, seconds: float) -> str:
    """A progress bar of tqdm as a log file keeps it: behind a carriage return, without newline."""
    share = done / total
    full = int(share * 10)
    clock = f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
    return (
        f"\r{text}: {share:4.0%}|{'█' * full:<10}| {done}/{total} "
        f"[{clock}<{clock}, {seconds / max(done, 1):5.2f}s/it]"
    )
