"""Reads a source: files, format, preset, and the rows of a record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canary.errors import InputError
from canary.imports.entries import Telling, shortened
from canary.imports.files import WHERE_IT_WRITES, Before, Found, files_of
from canary.imports.formats import files_to_read
from canary.imports.mapping import Mapped, mapped
from canary.imports.preset import NO_PRESET, Chosen, Preset, choose, is_shipped, load_preset
from canary.imports.readers.console import fitting
from canary.imports.series import bounded, gather
from canary.record.summary import MIN_STEPS

MOST_SAID = 5
"""Remarks in an error."""


@dataclass(frozen=True)
class Asked:
    """What the user asks for: null leaves it to the canary."""

    source: Path
    format: str | None = None
    preset: str | None = None
    run: str | None = None
    """Of a source that holds several: the name, id or number of one."""


@dataclass(frozen=True)
class Imported:
    """What was read."""

    format: str
    files: tuple[str, ...]
    preset: Preset | None
    preset_sha256: str | None
    """Of what a preset means that is not shipped."""
    why_preset: str
    mapped: Mapped
    told: tuple[str, ...]
    failed: str | None = None
    """Why the training failed, if the source says it."""


def read_source(asked: Asked, before: Before | None = None) -> Imported:
    """Read what another program left. What was there `before` a launch is not read.

    Raises:
        InputError: nothing can be read, or it holds no metric.
        ConfigError: the preset is wrong.
    """
    given = None if asked.preset in (None, NO_PRESET) else load_preset(asked.preset)
    telling, since = Telling(), 0.0
    if before is not None and not asked.source.exists():
        source = shortened(asked.source.name)
        raise InputError(f"the launch left nothing: {source} does not exist", WHERE_IT_WRITES)
    found = files_of(asked.source, telling)
    if before is not None:
        found, since = before.left_since(found, telling), before.moment
    form, files = files_to_read(found, asked.format, telling, shortened(str(asked.source)))
    more: dict[str, Any] = {}
    fitted: Preset | None = None
    if form.is_store:
        more = {"run": asked.run, "since": since}
    elif form.name == "console":
        fitted = fitting(files[0]) if asked.preset is None else None
        more = {"preset": given or fitted}
    entries = list(bounded(form.entries(files, telling, **more)))
    if not any(entry.values for entry in entries):
        raise _no_metric(files, telling)
    chosen = Chosen(given, "named" if given else "none was wanted")
    if asked.preset is None:
        chosen = choose(list(dict.fromkeys(name for entry in entries for name in entry.values)))
    if fitted is not None and (chosen.preset is None or chosen.preset.extends != fitted.framework):
        chosen = Chosen(fitted, "its patterns fit the most lines")
    source = shortened(files[0].name if len(files) == 1 else asked.source.name)
    series = gather(entries, telling, chosen.preset, asked.run, source, is_store=form.is_store)
    if not series.values:
        raise _no_metric(files, telling)
    rows = mapped(series, chosen.preset, telling)
    if len(rows.rows) < MIN_STEPS:
        few = "only one step" if len(rows.rows) == 1 else f"only {len(rows.rows)} steps"
        telling.tell(f"{few}: a comparison needs {MIN_STEPS}")
    return Imported(
        form.name,
        tuple(one.name for one in files),
        chosen.preset,
        None if given is None or is_shipped(asked.preset) else given.digest(),
        chosen.why,
        rows,
        tuple(telling.sentences()),
        telling.failed,
    )


def _no_metric(files: list[Found], telling: Telling) -> InputError:
    name = shortened(files[0].name)
    if not any(one.path.stat().st_size for one in files):
        return InputError(f"{name} is empty (0 bytes)", "name the file that the training wrote")
    said = "; ".join(telling.sentences()[:MOST_SAID])
    return InputError(
        f"{name} has no metric with a number{f': {said}' if said else ''}",
        "name what the training logged",
    )
