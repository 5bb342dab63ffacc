"""Make the files of a release from HEAD and check them as a stranger would use them.

    make release-candidate
    make release-candidate CANDIDATE="--python python3.11 --python python3.13 --train 3.13"

It leaves wheel, sdist, SBOMs, provenance and hashes in `build/release/files`, a log of each
environment in `build/release/logs`, and the table of all checks in `build/release/checks.md`.
The exit code is 1 if a check fails. docs/releases.md explains the checks.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import shutil
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tools.release_candidate.agreement import action_problems, changelog_problems
from tools.release_candidate.artifacts import build, check_artifacts
from tools.release_candidate.commands import run
from tools.release_candidate.environments import Interpreter, interpreter
from tools.release_candidate.image import check_image
from tools.release_candidate.installs import (
    Workshop,
    on_first_python,
    on_oldest_packages,
    on_oldest_training,
    on_other_python,
    on_training_python,
)
from tools.release_candidate.outcomes import CheckFailed, Ledger
from tools.release_candidate.papers import write_hashes, write_provenance
from tools.release_candidate.rehearsal import check_tags, clone
from tools.release_candidate.source import Source, export
from tools.release_candidate.trials import EXTRAS

ROOT = Path(__file__).parents[2]
TOOLS = ("build", "check_wheel_contents", "cyclonedx_py", "twine", "uv", "virtualenv")
BUILDERS = ("build", "setuptools")


def main(arguments: Sequence[str] | None = None) -> int:
    """Make and check a candidate; return 1 if a check failed."""
    given = _parser().parse_args(arguments)
    missing = [name for name in TOOLS if importlib.util.find_spec(name) is None]
    if missing:
        print(f"{', '.join(missing)} not installed here: use make release-candidate")
        return 2
    began, ledger = datetime.now(UTC), Ledger(lambda line: print(line, flush=True))
    output = given.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    for name in ("files", "logs", "environments"):
        shutil.rmtree(output / name, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="release-candidate-") as scratch:
        try:
            _candidate(given, Path(scratch), output, ledger, began)
        except CheckFailed as problem:  # what all checks need
            ledger.find("candidate", [str(problem)])
    head = f"{began:%Y-%m-%d}, {platform.system()} {platform.machine()}"
    counted = (
        f"{len(ledger.outcomes)} checks, {len(ledger.failed)} failed, {len(ledger.skipped)} not run"
    )
    (output / "checks.md").write_text(f"{head}: {counted}\n\n{ledger.table()}", encoding="utf-8")
    print(f"{counted}; the table is in {given.output / 'checks.md'}")
    return 1 if ledger.failed else 0


def _candidate(
    given: argparse.Namespace, scratch: Path, output: Path, ledger: Ledger, began: datetime
) -> None:
    logs = output / "logs"
    source = export(given.repository, scratch / "source")
    tools = Path(sys.executable)
    left = f"; {source.left_out} changed files are left out" if source.left_out else ""
    with ledger.check("build: sdist, and the wheel from it") as told:
        artifacts = build(tools, source, output / "files", logs / "build.log")
        told.details = f"{source.version} of commit {source.commit[:12]}{left}"
    if told.status != "ok":
        return
    check_artifacts(tools, source, artifacts, ledger, logs / "build.log")
    work = clone(given.repository, source, scratch)
    _agreement(source, work, ledger, logs)
    shop = Workshop(source, artifacts, tools, output, ledger)
    _installs(shop, given)
    if given.quick or given.no_image:
        ledger.skip("image", "not asked for")
    else:
        check_image(work, source, given.image_base, ledger, logs / "image.log")
    _papers(shop, began)


def _agreement(source: Source, work: Path, ledger: Ledger, logs: Path) -> None:
    changelog = source.root / "CHANGELOG.md"
    with ledger.check("CHANGELOG.md") as told:
        problems = changelog_problems(changelog.read_text(encoding="utf-8"), source.version)
        if problems:
            raise CheckFailed("; ".join(problems))
        told.details = f"its newest section is [{source.version}]"
    check_tags(work, source, ledger, logs / "tags.log")
    ledger.find("release: pages and examples use the tag that moves", action_problems(source))


def _installs(shop: Workshop, given: argparse.Namespace) -> None:
    pythons = _pythons(shop, given)
    if not pythons:
        raise CheckFailed("there is no Python to install on: name one with --python")
    first, *others = pythons
    if given.quick:
        on_first_python(shop, first, quick=True)
        shop.ledger.skip("extras, oldest packages, training, image", "--quick")
        return
    on_first_python(shop, first)
    for one in others:
        on_other_python(shop, one)
    on_oldest_packages(shop, first)
    trains = given.train or [first.minor]
    for one in pythons:
        if one.minor in trains:
            on_training_python(shop, one)
        else:
            named = f"name it with --train {one.minor}"
            shop.ledger.skip(f"Python {one.words}: wheel[train,report]", named)
    on_oldest_training(shop, first)
    for name, extra in EXTRAS.items():
        if extra.not_run:
            shop.ledger.skip(f"wheel[{name}]", extra.not_run)


def _pythons(shop: Workshop, given: argparse.Namespace) -> list[Interpreter]:
    """The named Pythons, or those of the classifiers that are on the path; the oldest first."""
    named = given.python or [f"python{minor}" for minor in shop.source.pythons]
    found = [one for name in named if (one := interpreter(name)) is not None]
    here = {one.minor for one in found}
    for minor in shop.source.pythons:
        if minor not in here:
            shop.ledger.skip(f"Python {minor}", f"no python{minor} here: name it with --python")
    return sorted(found, key=lambda one: one.release)


def _papers(shop: Workshop, began: datetime) -> None:
    log = shop.output / "logs" / "tools.log"
    with shop.ledger.check("provenance, hashes") as told:
        listed = json.loads(run([shop.tools, "-m", "pip", "list", "--format", "json"], log))
        used = {one["name"]: one["version"] for one in listed if one["name"] in BUILDERS}
        write_provenance(shop.source, shop.artifacts.folder, began, used)
        write_hashes(shop.artifacts.folder)
        told.details = "in-toto statement, not signed: GitHub signs one when it makes the release"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.release_candidate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    output = ROOT / "build" / "release"
    parser.add_argument("-o", "--output", type=Path, default=output, help="[build/release]")
    parser.add_argument("--quick", action="store_true", help="no extras, training and image")
    parser.add_argument(
        "--python",
        action="append",
        metavar="PROGRAM",
        help="a Python to install on; repeat it [python3.11, python3.12 ... of the classifiers]",
    )
    parser.add_argument(
        "--train",
        action="append",
        metavar="VERSION",
        help="a Python to train on, such as 3.13; repeat it [the oldest]",
    )
    parser.add_argument("--no-image", action="store_true", help="do not build the image")
    parser.add_argument("--image-base", default="", help="of scripts/build_image_rootless.sh")
    parser.add_argument("--repository", type=Path, default=ROOT, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
