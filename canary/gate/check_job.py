"""The training job's `canary check` of one config: its answer goes into the records."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from canary.campaign.environments import existing_environment
from canary.campaign.side import start_child, stop_child
from canary.check.schema import FILE, LARGEST
from canary.config.load import LoadedConfig, load_config
from canary.errors import EXIT_ERROR, EXIT_USAGE, CanaryError
from canary.gate.asked import Canary
from canary.gate.inputs import TrainSettings
from canary.gate.workspace import Place, Say
from canary.machine.program import program
from canary.record import jsonio

NO_TIME = "no minutes were left for canary check (raise timeout-minutes)"


def held_check(base: LoadedConfig) -> str:
    """Return the `--set` value that applies the base branch's `check` section, with all its keys:
    a setting is merged into the pull request's section."""
    return f"check={json.dumps(base.config.check.model_dump(mode='json'))}"


def ask_relations(
    settings: TrainSettings,
    place: Place,
    canary: Canary,
    base: LoadedConfig | None,
    overrides: Sequence[str],
    folder: str,
    left_s: float,
    say: Say,
) -> str:
    """Run `canary check` of a canary and keep its answer. Return why there is none, or an empty
    text."""
    if left_s <= 0:
        return NO_TIME
    try:
        held = [held_check(base)] if base is not None else []
        return _asked(settings, place, canary, [*overrides, *held], folder, left_s, say)
    except CanaryError as error:
        return _without_places(str(error), place)


def _asked(
    settings: TrainSettings,
    place: Place,
    canary: Canary,
    overrides: Sequence[str],
    folder: str,
    left_s: float,
    say: Say,
) -> str:
    here, python, environment = _head(settings, place)
    config = str(here / canary.config)
    output = place.output / f"check-{folder}"
    words = [*program(python), "check", config, "--quiet"]
    words += ["--output-dir", str(output)]
    for setting in overrides:
        words += ["--set", setting]
    if left_s < load_config(config, overrides).config.timeout:
        words += ["--set", f"timeout={left_s:.1f}"]
    child = start_child(words, here, environment)
    try:
        out, err = child.communicate(timeout=left_s)
    except subprocess.TimeoutExpired:
        stop_child(child)
        return "canary check did not end in the minutes that were left (raise timeout-minutes)"
    except BaseException:
        stop_child(child)
        raise
    last = (err.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
    if child.returncode in (EXIT_USAGE, EXIT_ERROR):
        return _without_places(last.removeprefix("canary: "), place)
    say(f"{canary.title}: check: {(out.strip().splitlines() or [last])[0]}")
    return _kept(output / FILE, settings.records / folder / FILE)


def _head(settings: TrainSettings, place: Place) -> tuple[Path, Path, Mapping[str, str]]:
    """Return the working directory of the head, its Python and its environment."""
    if place.sides is None:
        return place.folder, place.python, place.environment
    python, environment = existing_environment("head", place.sides, place.environment)
    return place.sides / "head" / settings.folder, python, environment


def _without_places(said: str, place: Place) -> str:
    """Return an error without the folders of this machine."""
    return said.replace(f"{place.folder}/", "").replace(f"{place.checkout}/", "")


def _kept(answer: Path, into: Path) -> str:
    """Copy the answer into the records; return why that failed."""
    try:
        content = jsonio.content_of(answer, LARGEST)
        into.parent.mkdir(parents=True, exist_ok=True)
        into.write_bytes(content)
    except OSError as error:
        return f"canary check left no answer: {error.strerror}"
    return ""
