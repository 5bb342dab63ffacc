"""Which environments are made: each extra alone on one Python, and all light ones on the others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.release_candidate.artifacts import Artifacts
from tools.release_candidate.commands import run
from tools.release_candidate.environments import Environment, Interpreter
from tools.release_candidate.outcomes import Ledger
from tools.release_candidate.papers import write_sbom
from tools.release_candidate.source import Source
from tools.release_candidate.trials import CORE, EXTRAS, LIGHT, REPORT, WITHOUT_TORCH, Trial

TRAINS = ["train", "report"]
"""What the README installs."""
OLDEST = [name for name in LIGHT if name != "ray"]
"""Extras of the oldest packages; Ray's own requirements are newer than some of ours."""
TORCH = re.compile(r"(?m)^torch==(\S+)$")
PLUGIN = "tools.release_candidate.without_torch"
TESTED = ("record", "config", "imports", "report", "trends")
"""Folders of tests/unit that run on the oldest packages."""
TEST_TOOLS = (
    "pytest",
    "pytest-timeout",
    "hypothesis",
    "jsonschema",
    "openapi-schema-validator",
    "httpx2",
)


@dataclass(frozen=True)
class Workshop:
    """What all installs share."""

    source: Source
    artifacts: Artifacts
    tools: Path
    """The Python of the environment that has virtualenv, uv and cyclonedx-py."""
    output: Path
    ledger: Ledger

    @property
    def newest(self) -> Path:
        """The newest packages that are supported: the tested set."""
        return self.source.root / "constraints.txt"

    def environment(self, name: str) -> Environment:
        """Return an environment that is not made yet."""
        log = self.output / "logs" / f"{name}.log"
        return Environment(self.output / "environments" / name, self.source, log)


def on_first_python(shop: Workshop, python: Interpreter, quick: bool = False) -> None:
    """Install wheel and sdist without extras, and the wheel with each extra that needs no torch.

    `quick`: only the wheel without extras.
    """
    name = f"Python {python.words}"
    _install(shop, python, f"{name}: wheel", "core", [], (*CORE, *WITHOUT_TORCH), sbom="core")
    if quick:
        return
    _install(shop, python, f"{name}: sdist", "sdist", [], (*CORE, *WITHOUT_TORCH), sdist=True)
    for extra in EXTRAS:
        if extra in LIGHT:
            trials = EXTRAS[extra].trials
            _install(shop, python, f"{name}: wheel[{extra}]", extra, [extra], trials)


def on_other_python(shop: Workshop, python: Interpreter) -> None:
    """Install the wheel without extras, then all extras that need no torch together."""
    name, folder = f"Python {python.words}", f"python{python.minor}"
    _install(shop, python, f"{name}: wheel", folder, [], (*CORE, *WITHOUT_TORCH))
    known = {extra: EXTRAS[extra].missing_from(python.release) for extra in LIGHT}
    for extra, why in known.items():
        if why:
            shop.ledger.skip(f"{name}: wheel[{extra}]", why)
    extras = [extra for extra, why in known.items() if not why]
    trials = [trial for extra in extras for trial in EXTRAS[extra].trials]
    check = f"{name}: wheel[{','.join(extras)}]"
    _install(shop, python, check, f"{folder}-extras", extras, (*CORE, *trials))


def on_oldest_packages(shop: Workshop, python: Interpreter) -> None:
    """Install the oldest packages that pyproject.toml allows; run tests that need no torch."""
    oldest = shop.output / "oldest.txt"
    with shop.ledger.check(f"Python {python.words}: oldest packages, wheel"):
        _write_oldest(shop, python, oldest, OLDEST)
        environment = shop.environment("oldest")
        environment.create(shop.tools, python)
        environment.install(oldest, f"{shop.artifacts.wheel}[{','.join(OLDEST)}]")
        trials = [trial for name in OLDEST for trial in EXTRAS[name].trials]
        environment.try_all((*CORE, *trials))
    with shop.ledger.check(f"Python {python.words}: oldest packages, unit tests") as told:
        environment.install(oldest, *TEST_TOOLS)
        folders = [f"tests/unit/{name}" for name in TESTED]
        words = [environment.python, "-m", "pytest", "-m", "not (train or slow)", "-p", PLUGIN]
        log = shop.output / "logs" / "oldest-tests.log"
        said = run([*words, *folders], log, cwd=shop.source.root)
        told.details = said.strip().splitlines()[-1].strip("= ")
    environment.remove()


def on_training_python(shop: Workshop, python: Interpreter) -> None:
    """Install what trains, torch first as the Makefile does, and run the README's demo."""
    name = f"Python {python.words}"
    environment = shop.environment(f"python{python.minor}-train")
    extras = [extra for extra in TRAINS if not EXTRAS[extra].missing_from(python.release)]
    with shop.ledger.check(f"{name}: wheel[{','.join(extras)}], canary demo") as told:
        environment.create(shop.tools, python)
        environment.install(shop.newest, "torch")
        environment.install(shop.newest, f"{shop.artifacts.wheel}[{','.join(extras)}]")
        report = (REPORT,) if "report" in extras else ()
        environment.try_all((*CORE, *report, *EXTRAS["train"].trials))
        write_sbom(shop.tools, shop.source, environment, shop.artifacts.folder, "train")
        told.details = "a healthy change passes, a masked EOS fails"
    if told.status == "ok":
        _beside_torch(shop, name, environment)
    environment.remove()


def on_oldest_training(shop: Workshop, python: Interpreter) -> None:
    """Run the demo on the oldest packages that train, with the torch of the tested set."""
    environment = shop.environment("oldest-train")
    with shop.ledger.check(
        f"Python {python.words}: oldest packages that train, canary demo"
    ) as told:
        (torch,) = TORCH.findall(shop.newest.read_text(encoding="utf-8"))
        oldest = shop.output / "oldest-train.txt"
        _write_oldest(shop, python, oldest, ["train"], torch)
        environment.create(shop.tools, python)
        environment.install(oldest, "torch")
        environment.install(oldest, f"{shop.artifacts.wheel}[train]")
        environment.try_all((*CORE, *EXTRAS["train"].trials))
        told.details = f"beside torch {torch}"
    environment.remove()


def _beside_torch(shop: Workshop, name: str, environment: Environment) -> None:
    for extra, one in EXTRAS.items():
        if one.torch and extra not in TRAINS:
            with shop.ledger.check(f"{name}: wheel[{extra}]"):
                environment.install(shop.newest, f"{shop.artifacts.wheel}[{extra}]")
                environment.try_all(one.trials)


def _install(
    shop: Workshop,
    python: Interpreter,
    check: str,
    folder: str,
    extras: Sequence[str],
    trials: Iterable[Trial],
    sdist: bool = False,
    sbom: str = "",
) -> None:
    environment = shop.environment(folder)
    with shop.ledger.check(check):
        environment.create(shop.tools, python)
        file = shop.artifacts.sdist if sdist else shop.artifacts.wheel
        environment.install(shop.newest, f"{file}[{','.join(extras)}]" if extras else str(file))
        environment.try_all(tuple(trials))
        if sbom:
            write_sbom(shop.tools, shop.source, environment, shop.artifacts.folder, sbom)
    environment.remove()


def _write_oldest(
    shop: Workshop, python: Interpreter, file: Path, extras: Sequence[str], torch: str = ""
) -> None:
    """Write the oldest versions of direct requirements; `torch`: its version in place of those."""
    words = [word for name in extras for word in ("--extra", name)]
    if torch:
        overrides = file.with_suffix(".overrides.txt")
        overrides.write_text(f"torch=={torch}\n", encoding="utf-8")
        words += ["--override", str(overrides)]
    uv = ["-m", "uv", "--no-config", "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
    resolution = ["--resolution", "lowest-direct", "--python-version", python.minor]
    project = shop.source.root / "pyproject.toml"
    log = shop.output / "logs" / "oldest.log"
    run([shop.tools, *uv, *resolution, *words, "-o", file, project], log)
