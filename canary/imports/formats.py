"""The formats that can be read, the richest first, and how a source's format is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from canary.errors import InputError, did_you_mean, nearest
from canary.imports.entries import Entry, Telling, shortened
from canary.imports.files import Found
from canary.imports.readers import (
    console,
    csv_file,
    json_file,
    jsonl,
    mlflow,
    sqlite_store,
    tensorboard,
    wandb,
)
from canary.imports.series import listed


@dataclass(frozen=True)
class Format:
    """One format."""

    name: str
    title: str
    fits: Callable[[Found], bool]
    read: Callable[..., Iterator[Entry]]
    """Takes the file of one run, or its files, and a `Telling`. A store also takes `run` and
    `since`, the console its `preset`."""
    one_run: Literal["folder", "file", "source"] = "file"
    """What holds one run: the files of a folder, a file, or the whole source."""
    is_store: bool = False
    """Whether one file may hold several runs."""

    def entries(self, files: list[Found], telling: Telling, **more: Any) -> Iterator[Entry]:
        """Yield what the files of one run hold. Raises InputError as the reader."""
        return self.read(files[0] if self.one_run == "file" else files, telling, **more)


FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        Format("tensorboard", "TensorBoard events", tensorboard.fits, tensorboard.read, "folder"),
        Format("wandb", "a W&B offline run", wandb.fits, wandb.read),
        Format("mlflow", "an MLflow store", mlflow.fits, mlflow.read, "source", is_store=True),
        Format("jsonl", "JSON lines", jsonl.fits, jsonl.read),
        Format(
            "trainer_state",
            "a Trainer's trainer_state.json",
            json_file.is_state,
            json_file.read_states,
            "source",
        ),
        Format("csv", "CSV or TSV", csv_file.fits, csv_file.read),
        Format("json", "JSON with metrics", json_file.fits, json_file.read),
        Format("console", "a console log", console.fits, console.read),
    )
}
"""By name, the richest first: the order in which a folder of several formats is searched."""


def known_format(name: str) -> Format:
    """Return a format by its name. Raises InputError for another name."""
    if name not in FORMATS:
        near = did_you_mean(nearest(name, FORMATS), f"known are {', '.join(FORMATS)}")
        raise InputError(f"no format {name!r}", near)
    return FORMATS[name]


def files_to_read(
    files: Sequence[Found], asked: str | None, telling: Telling, source: str
) -> tuple[Format, list[Found]]:
    """Return the format of a source, and its files of one run.

    Raises:
        InputError: no file has a known format, or there are several runs.
    """
    if not files:
        raise InputError(f"{source} has no files", "name what the training left")
    if asked is not None:
        form = known_format(asked)
        mine = list(files) if len(files) == 1 else [one for one in files if form.fits(one)]
        if not mine:
            raise InputError(
                f"nothing in {source} looks like {form.title}", "name the file, or its folder"
            )
        return form, _one_run(form, mine, telling, source)
    found = {name: [one for one in files if form.fits(one)] for name, form in FORMATS.items()}
    fitting = {name: mine for name, mine in found.items() if mine}
    if not fitting:
        for one in files:
            sqlite_store.check(one)
        known = ", ".join(form.title for form in FORMATS.values())
        raise InputError(
            f"no known format in {listed([one.name for one in files])}",
            f"known are {known}; --format names one",
        )
    first, *others = fitting
    for name in others:
        left = fitting[name]
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        what = f"{FORMATS[name].title} ({shortened(left[0].name)}{more})"
        telling.tell(f"not read: {what}; --format {name} reads it")
    return FORMATS[first], _one_run(FORMATS[first], fitting[first], telling, source)


def _one_run(form: Format, files: list[Found], telling: Telling, source: str) -> list[Found]:
    """Return the files of the only run.

    Raises:
        InputError: there are several.
    """
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
