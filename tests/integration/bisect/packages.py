"""Twelve small packages as wheels in a folder, and a training that reads their defaults."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from tests.integration.bisect.project import MODEL

Versions = Mapping[str, str]
"""One version of each package."""

RATES = "lab-rates"
RATE_VERSIONS = tuple(f"1.{minor}.{patch}" for minor in range(3, 13) for patch in range(3))
"""30 versions in the order of release; in the order of letters 1.10.0 would come first."""

VERSIONS: dict[str, tuple[str, ...]] = {
    RATES: RATE_VERSIONS,
    "lab-text": ("1.0.0", "1.1.0", "2.0.0", "2.1.0"),
    "lab-vocab": ("1.0.0", "1.0.1", "2.0.0"),
    "lab-masks": ("1.0.0", "2.0.0", "3.0.0", "3.1.0"),
    "lab-labels": ("1.0.0", "2.0.0", "3.0.0"),
    "lab-batching": ("0.1.0", "0.2.0", "0.9.0", "0.10.0", "0.11.0"),
    "lab-clock": ("1.0.0", "1.1.0"),
    "lab-log": ("2.0.0", "2.0.1", "2.1.0"),
    "lab-paths": ("1.0.0", "1.0.1"),
    "lab-progress": ("0.1.0", "0.1.1", "0.2.0", "0.3.0"),
    "lab-shuffle": ("1.0.0", "1.1.0", "1.2.0"),
    "lab-store": ("3.0.0", "3.1.0"),
}
GOOD: Versions = {name: versions[0] for name, versions in VERSIONS.items()}
BAD: Versions = {name: versions[-1] for name, versions in VERSIONS.items()}


@dataclass(frozen=True)
class Plan:
    """What the versions do: first bad ones, and those that cannot be used."""

    rate: str | None = None
    """The first version of `lab-rates` that doubles the default."""
    corrupt: frozenset[str] = field(default_factory=frozenset)
    """Versions of `lab-rates` whose wheel is cut off."""
    other_python: frozenset[str] = field(default_factory=frozenset)
    """Versions of `lab-rates` for a Python that nobody has."""
    no_import: frozenset[str] = field(default_factory=frozenset)
    """Versions of `lab-rates` that install and cannot be imported."""


def build_packages(folder: Path, plan: Plan) -> Path:
    """Writes every version of every package into a folder for `PIP_FIND_LINKS`."""
    folder.mkdir(parents=True)
    for name, versions in VERSIONS.items():
        for version in versions:
            path = write_wheel(
                folder, name, version, _code(name, version, plan), _needs(name, version)
            )
            if name == RATES and version in plan.corrupt:
                path.write_bytes(path.read_bytes()[:200])
            elif name == RATES and version in plan.other_python:
                needs = ["Requires-Python: >=99"]
                write_wheel(folder, name, version, _code(name, version, plan), needs)
    return folder


def _needs(name: str, version: str) -> list[str]:
    """Further lines of a wheel's metadata."""
    lines = []
    if name == "lab-batching":
        lines.append("Requires-Dist: lab-text>=1")
    if name == "lab-progress":
        lines.append("Requires-Dist: lab-clock>=1")
    if name == "lab-text":
        major = int(version.split(".")[0])
        lines.append(f"Requires-Dist: lab-vocab>={major},<{major + 1}")
    return lines


def _code(name: str, version: str, plan: Plan) -> str:
    """The one module of a package."""
    lines = [f'"""{name}."""', f"VERSION = {version!r}"]
    if name == RATES:
        bad = plan.rate is not None and version in RATE_VERSIONS[RATE_VERSIONS.index(plan.rate) :]
        lines.append(f"DEFAULT = {1e-3 if bad else 5e-4}")
        if version in plan.no_import:
            lines.append("import lab_rates_of_old")
    return "\n".join(lines) + "\n"


def write_wheel(folder: Path, name: str, version: str, code: str, more: Iterable[str] = ()) -> Path:
    """Writes a wheel of one module (the format of PEP 427)."""
    module = name.replace("-", "_")
    about = f"{module}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *more]
    files = {
        f"{module}.py": code,
        f"{about}/METADATA": "\n".join(lines) + "\n",
        f"{about}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    listed = [f"{path},{_digest(text)},{len(text.encode())}" for path, text in files.items()]
    files[f"{about}/RECORD"] = "\n".join([*listed, f"{about}/RECORD,,"]) + "\n"
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in files.items():
            archive.writestr(zipfile.ZipInfo(inside, (2024, 1, 1, 0, 0, 0)), text)
    return path


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def freeze(versions: Versions) -> str:
    """What `pip freeze` prints: these packages among others, one of them from a folder."""
    torch = f"torch=={metadata.version('torch')}"
    ours = [f"{name}=={version}" for name, version in versions.items()]
    editable = [
        "# Editable install with no version control (project==0.0.1)",
        "-e /home/ada/project",
    ]
    return "\n".join([*editable, *sorted([*ours, torch])]) + "\n"


CANARY = """\
name: packages
command: [python, train.py]
look_steps: 3
metrics_warmup_steps: 1
threads: 1
"""

TRAIN = '''\
"""Trains with the defaults of its packages."""
import lab_batching, lab_clock, lab_labels, lab_log, lab_masks, lab_paths, lab_progress
import lab_rates, lab_shuffle, lab_store, lab_text
import torch

from model import NextLetter

FACTOR = 1.0
END = 1


def row(number):
    text = f"{number} + {number + 1} = {2 * number + 1}"
    ids = [2 + ord(letter) % 62 for letter in text] + [END]
    return ids + [END] * (20 - len(ids)), len(ids)


def batch(step):
    rows = [row(4 * step + place) for place in range(4)]
    ids = torch.tensor([ids for ids, _ in rows])
    labels = ids.clone()
    for place, (_, length) in enumerate(rows):
        labels[place, length:] = -100
    return {"input_ids": ids, "labels": labels}


torch.manual_seed(1)
model = NextLetter(64)
optimizer = torch.optim.AdamW(model.parameters(), lr=FACTOR * lab_rates.DEFAULT)
for step in range(8):
    model.loss(batch(step)).backward()
    optimizer.step()
    optimizer.zero_grad()
'''

PROJECT: dict[str, str] = {
    ".gitignore": "canary_output/\n__pycache__/\n",
    "canary.yaml": CANARY,
    "model.py": MODEL,
    "train.py": TRAIN,
}


def write_project(folder: Path) -> Path:
    """Writes the training that uses the packages."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in PROJECT.items():
        (folder / name).write_text(text)
    return folder
