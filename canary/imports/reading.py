"""Reads a source: files, format, preset, and the rows of a record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from canary.errors import InputError
from canary.imports.entries import Entry, Telling, shortened
from canary.imports.files import Before, Found, files_of
from canary.imports.formats import Format, files_to_read
from canary.imports.mapping import Mapped, mapped
from canary.imports.preset import NO_PRESET, Chosen, Preset, choose, is_shipped, load_preset
from canary.imports.readers.console import fitting
from canary.imports.series import bounded, gather
from canary.record.summary import MIN_STEPS

WHERE_IT_WRITES = "let `import.source` name what the command writes"
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
    """Read what another program left.

    Args:
        asked: the source, its format and its preset.
        before: the files that were there before a launch, which must not be read.

    Raises:
        InputError: nothing can be read, or it holds no metric.
        ConfigError: the preset is wrong.
    """
    preset = None
    if asked.preset not in (None, NO_PRESET):
        preset = load_preset(asked.preset)
    telling = Telling()
    if before is not None and not asked.source.exists():
        source = shortened(asked.source.name)
        raise InputError(f"the launch left nothing: {source} does not exist", WHERE_IT_WRITES)
    found = files_of(asked.source, telling)
    if before is not None:
        found = _left_since(before, found, telling)
    form, files = files_to_read(found, asked.format, telling, shortened(str(asked.source)))
    since = 0.0 if before is None else before.moment
    why = "named"
    fitted: Preset | None = None
    if preset is None and asked.preset is None and form.name == "console":
        preset, why = fitting(files[0]), "its patterns fit the most lines"
        fitted = preset
    entries = _entries(form, files, telling, asked, preset, since)
    if not any(entry.values for entry in entries):
        raise _no_metric(files, telling)
    chosen = Chosen(preset, why) if preset is not None else _chosen(asked, entries)
    if fitted is not None:
        closer = _chosen(asked, entries)
        is_kin = closer.preset is not None and closer.preset.extends == fitted.framework
        chosen = closer if is_kin else chosen
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
        None if preset is None or is_shipped(asked.preset) else preset.digest(),
        chosen.why,
        rows,
        tuple(telling.sentences()),
        telling.failed,
    )


def _no_metric(files: list[Found], telling: Telling) -> InputError:
    if len(files) == 1 and not files[0].path.stat().st_size:
        return InputError(
            f"{shortened(files[0].name)} is empty (0 bytes)",
            "name the file that the training wrote",
        )
    if not any(one.size for one in files):
        what = "did the training write to another file?"
        raise InputError(f"{shortened(files[0].name)} is empty (0 bytes)", what)
    said = "; ".join(telling.sentences()[:MOST_SAID])
    return InputError(
        f"{shortened(files[0].name)} has no metric with a number{f': {said}' if said else ''}",
        "name what the training logged",
    )


def _left_since(before: Before, found: list[Found], telling: Telling) -> list[Found]:
    left = before.left_since(found, telling)
    if not left:
        what = f"; all {len(found):,} of its files are older" if found else ""
        raise InputError(f"the launch left nothing in the source{what}", WHERE_IT_WRITES)
    return left


def _entries(
    form: Format,
    files: list[Found],
    telling: Telling,
    asked: Asked,
    preset: Preset | None,
    since: float,
) -> list[Entry]:
    if form.is_store:
        return list(bounded(form.read(files, telling, run=asked.run, since=since)))
    if form.name == "console":
        return list(bounded(form.read(files, telling, preset=preset)))
    return list(bounded(form.read(files, telling)))


def _chosen(asked: Asked, entries: list[Entry]) -> Chosen:
    if asked.preset == NO_PRESET:
        return Chosen(None, "none was wanted")
    return choose(list(dict.fromkeys(name for entry in entries for name in entry.values)))
