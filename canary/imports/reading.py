"""Reads a source: its files, their format, the preset, and the rows of a record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from canary.errors import InputError, did_you_mean, nearest
from canary.imports.entries import Entry, Telling, listed, shortened
from canary.imports.files import WHERE_IT_WRITES, Before, Found, files_of
from canary.imports.mapping import Mapped, mapped
from canary.imports.preset import NO_PRESET, Preset, choose, is_shipped, load_preset
from canary.imports.readers import console, csv_file, json_files, tensorboard, wandb
from canary.imports.series import bounded, gather
from canary.record.summary import MIN_STEPS

MOST_SAID = 5
"""Remarks in an error."""


@dataclass(frozen=True)
class Format:
    """One format."""

    name: str
    title: str
    fits: Callable[[Found], bool]
    read: Callable[..., Iterator[Entry]]
    """Takes the file of one run, or its files, and a `Telling`; the console also its `preset`."""
    one_run: Literal["folder", "file", "source"] = "file"
    """What holds one run: the files of a folder, a file, or the whole source."""


FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        Format("tensorboard", "TensorBoard events", tensorboard.fits, tensorboard.read, "folder"),
        Format("wandb", "a W&B offline run", wandb.fits, wandb.read),
        Format("jsonl", "JSON lines", json_files.has_lines, json_files.read_lines),
        Format(
            "trainer_state",
            "a Trainer's trainer_state.json",
            json_files.is_state,
            json_files.read_states,
            "source",
        ),
        Format("csv", "CSV or TSV", csv_file.fits, csv_file.read),
        Format("json", "JSON with metrics", json_files.fits, json_files.read),
        Format("console", "a console log", console.fits, console.read),
    )
}
"""By name, the richest first: the order in which a folder of several formats is searched."""


@dataclass(frozen=True)
class Asked:
    """What the user asks for: null leaves it to the canary."""

    source: Path
    format: str | None = None
    preset: str | None = None


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

    @property
    def framework(self) -> str | None:
        """The framework of the preset."""
        return None if self.preset is None else self.preset.framework


def read_source(asked: Asked, before: Before | None = None) -> Imported:
    """Read what another program left. What was there `before` a launch is not read.

    Raises:
        InputError: nothing can be read, or it holds no metric.
        ConfigError: the preset is wrong.
    """
    given = None if asked.preset in (None, NO_PRESET) else load_preset(asked.preset)
    preset, why = given, "named" if given else "none was wanted"
    telling = Telling()
    source = shortened(str(asked.source))
    if before is not None and not asked.source.exists():
        what = f"the launch left nothing: {shortened(asked.source.name)} does not exist"
        raise InputError(what, WHERE_IT_WRITES)
    found = files_of(asked.source, telling)
    if before is not None:
        found = before.left_since(found, telling)
    form, files = _files_to_read(found, asked.format, telling, source)
    more = {"preset": given} if form.name == "console" else {}
    read_from = files[0] if form.one_run == "file" else files
    entries = list(bounded(form.read(read_from, telling, **more)))
    if not any(entry.values for entry in entries):
        raise _no_metric(files, telling)
    if asked.preset is None:
        preset, why = choose(list(dict.fromkeys(name for one in entries for name in one.values)))
    name = shortened(files[0].name if len(files) == 1 else asked.source.name)
    series = gather(entries, telling, preset, name)
    if not series.values:
        raise _no_metric(files, telling)
    rows = mapped(series, preset, telling)
    if len(rows.rows) < MIN_STEPS:
        few = "only one step" if len(rows.rows) == 1 else f"only {len(rows.rows)} steps"
        telling.tell(f"{few}: a comparison needs {MIN_STEPS}")
    return Imported(
        form.name,
        tuple(one.name for one in files),
        preset,
        None if given is None or is_shipped(asked.preset) else given.digest(),
        why,
        rows,
        tuple(telling.sentences()),
        telling.failed,
    )


def _files_to_read(
    files: Sequence[Found], asked: str | None, telling: Telling, source: str
) -> tuple[Format, list[Found]]:
    """Return the format of a source, and its files of one run.

    Raises:
        InputError: no file has a known format, or there are several runs.
    """
    if not files:
        raise InputError(f"{source} has no files", "name what the training left")
    if asked is not None:
        if asked not in FORMATS:
            near = did_you_mean(nearest(asked, FORMATS), f"known are {', '.join(FORMATS)}")
            raise InputError(f"no format {asked!r}", near)
        form = FORMATS[asked]
        mine = list(files) if len(files) == 1 else [one for one in files if form.fits(one)]
        if not mine:
            raise InputError(
                f"nothing in {source} looks like {form.title}", "name the file, or its folder"
            )
        return form, _of_one_run(form, mine, telling, source)
    found = {name: [one for one in files if form.fits(one)] for name, form in FORMATS.items()}
    fitting = {name: mine for name, mine in found.items() if mine}
    if not fitting:
        known = ", ".join(form.title for form in FORMATS.values())
        raise InputError(
            f"no known format in {listed([one.name for one in files])}",
            f"known are {known}; --format names one",
        )
    first, *others = fitting
    for name in others:
        left = fitting[name]
        more_left = f" and {len(left) - 1} more" if len(left) > 1 else ""
        what = f"{FORMATS[name].title} ({shortened(left[0].name)}{more_left})"
        telling.tell(f"not read: {what}; --format {name} reads it")
    return FORMATS[first], _of_one_run(FORMATS[first], fitting[first], telling, source)


def _of_one_run(form: Format, files: list[Found], telling: Telling, source: str) -> list[Found]:
    """Return the files of the only run. Raises InputError if there are several."""
    runs = sorted({one.folder if form.one_run == "folder" else one.name for one in files})
    below = f"{runs[0]}/" if runs[0] else ""
    if form.one_run == "folder" and all(run.startswith(below) for run in runs[1:]):
        for run in runs[1:]:  # TensorBoard's writers keep hyperparameters there
            telling.tell("the folder below the run's was not read", run)
        return [one for one in files if one.folder == runs[0]]
    if form.one_run != "source" and len(runs) > 1:
        raise InputError(
            f"{source} holds {len(runs)} runs: {listed([run or '.' for run in runs])}",
            f"name one of these {form.one_run}s",
        )
    return files


def _no_metric(files: list[Found], telling: Telling) -> InputError:
    name = shortened(files[0].name)
    if not any(one.path.stat().st_size for one in files):
        return InputError(f"{name} is empty (0 bytes)", "name the file that the training wrote")
    said = "; ".join(telling.sentences()[:MOST_SAID])
    return InputError(
        f"{name} has no metric with a number{f': {said}' if said else ''}",
        "name what the training logged",
    )
