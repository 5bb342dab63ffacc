"""The record of an imported run: a normal run folder with one launch; and what is said of it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from canary.config.load import KEY_HINTS
from canary.config.spans import WARMUP
from canary.errors import UsageError, printable
from canary.imports.entries import counted, listed, shortened
from canary.imports.mapping import LAUNCH, span
from canary.imports.reading import Asked, Imported, read_source
from canary.protocol.failure import failure_of
from canary.protocol.job import Result
from canary.protocol.record_writer import RecordWriter
from canary.record import jsonio
from canary.record.curves import MOST_VALUES, UNKNOWN_MACHINE, Source
from canary.record.folder import RunFolder, new_run_id
from canary.record.step_row import Row
from canary.record.types import RunRecord

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
NAMED_MACHINE = "named"
"""The device type of a machine of which only the name is known."""
UNMEASURED = {
    "exact": "the run was imported: no look collected exact signals",
    "phases": "the run was imported: it has no phases of a step",
    "perf.approx_tokens_per_sec": "the run was imported: tokens were not counted per step",
    "perf.samples_per_sec": "the run was imported: samples were not counted per step",
    "host": "the run was imported: its processes were not watched",
}
"""Why values of an imported record are null."""


def warmup_of(rows: Sequence[Row], given: int | None = None) -> int:
    """Return how many first steps speeds leave out: `given`, or ten, or a fifth if that is less."""
    if given is not None or not rows:
        return given or 0
    first, last = span(rows)
    return min(WARMUP, (last - first + 1) // 5)


class ImportWriter(RecordWriter):
    """Writes the record of an imported run."""

    def warmup(self, rows: Sequence[Row]) -> int:
        """Return how many first steps speeds leave out."""
        count = warmup_of(rows)
        self.record.config["metrics_warmup_steps"] = count
        return count


def fill(writer: RecordWriter, imported: Imported) -> None:
    """Put what was read into a record whose launch was added: rows, source, notes, reasons."""
    rows = "".join(f"{jsonio.dumps(row)}\n" for row in imported.mapped.rows)
    writer.folder.steps.write_text(rows, encoding="utf-8")
    record, found = writer.record, imported.mapped
    # Runs of two frameworks differ in it.
    record.config["training_type"] = imported.framework or "import"
    if imported.preset_sha256 is not None:
        record.config["preset_sha256"] = imported.preset_sha256
    record.unmeasured.update(UNMEASURED)
    if found.no_step_time:
        record.unmeasured["perf.step_time"] = found.no_step_time
    if not any("peak_bytes" in row for row in found.rows):
        record.unmeasured["perf.max_mem_mb"] = "not recorded: the source has no peak memory"
    record.notes += [
        note
        for note in _notes(imported, "command" not in record.config)
        if note not in record.notes
    ]
    record.source = Source(
        format=imported.format,
        preset=imported.framework,
        files=list(imported.files[:100]),
        names=found.names,
    )


def _notes(imported: Imported, by_hand: bool) -> list[str]:
    found = imported.mapped
    notes = [f"imported: {summary_of(imported)}", f"preset: {preset_words(imported)}"]
    if found.step_time:
        notes.append(f"step times are {found.step_time}")
    kept = len(found.names) + (found.others if by_hand else 0)
    if kept * len(found.rows) > MOST_VALUES:
        notes.append(f"the record keeps {MOST_VALUES:,} values of its curves; steps.jsonl has all")
    return [*notes, *imported.told]


def summary_of(imported: Imported) -> str:
    """Return format, files, steps and number of metrics."""
    found = imported.mapped
    first, last = span(found.rows)
    count = len(imported.files)
    files = imported.files[0] if count == 1 else f"{count} files"
    steps = f"step {first}" if first == last else f"steps {first} to {last}"
    rows = counted(len(found.rows), "row", "rows")
    metrics = counted(found.count, "metric", "metrics")
    return f"{imported.format}, {files}, {rows} of {steps}, {metrics}"


def preset_words(imported: Imported) -> str:
    """Return which preset was used, and why."""
    if imported.preset is None:
        return f"none: {imported.why_preset}; metrics keep the names of the source"
    found = imported.mapped
    names = f"{len(found.names)} of {counted(found.count, 'metric', 'metrics')}"
    return f"{imported.preset.shown} ({imported.why_preset}); it names {names}"


def import_run(
    asked: Asked, output_dir: Path, name: str | None = None, machine: str | None = None
) -> tuple[RunRecord, Path, Imported]:
    """Make the record of an imported run. Return it, its folder, what was read.

    Raises:
        UsageError: the name cannot be part of a folder's name.
        InputError: nothing can be read, or it holds no metric.
        ConfigError: the preset is wrong.
        MachineError: the record cannot be written.
    """
    if name is not None and not NAME.fullmatch(name):
        raise UsageError(f"--name {name!r} is not a canary's name", KEY_HINTS["name"])
    imported = read_source(asked)
    # The runs of one framework share it.
    name = name or imported.framework or imported.format
    now = datetime.now(UTC)
    folder = RunFolder.create(output_dir.absolute(), new_run_id(name, now))
    config = {
        "name": name,
        "training_type": imported.framework or "import",
        "import": {"preset": imported.framework},
    }
    writer = ImportWriter(folder, name, config)
    writer.record.git = {"sha": None, "reason": "the run was imported: its commit is not known"}
    if machine is None:
        writer.record.unmeasured["env.device"] = (
            f"the run was imported: the machine {UNKNOWN_MACHINE}"
        )
    else:
        writer.record.env["device"] = {"type": NAMED_MACHINE, "name": shortened(machine)}
    writer.add_launch(LAUNCH)
    ended = Result(status="completed")
    if imported.failed is not None:
        failure = failure_of(imported.failed)
        ended = Result(status="failed", reason=imported.failed, failure=failure)
    with folder.or_nothing():
        fill(writer, imported)
        writer.close_launch(LAUNCH, ended, len(imported.mapped.rows))
        record = writer.finish(ended)
    shutil.rmtree(folder.scratch, ignore_errors=True)
    return record, folder.path, imported


MOST_LINES = 20
"""Remarks on the terminal; the record's notes have all."""


def import_lines(record: RunRecord, imported: Imported) -> list[str]:
    """Return what was read, what is missing, and what was told."""
    found = imported.mapped
    lines = [f"read        {summary_of(imported)}", f"preset      {preset_words(imported)}"]
    if found.names:
        pairs = [f"{ours} ({name})" for ours, name in found.names.items()]
        lines.append(f"named       {listed(pairs)}")
    if imported.failed is not None:
        lines.append(f"status      failed: {imported.failed}")
    lines.append(f"step time   {found.step_time or found.no_step_time}")
    if "perf.max_mem_mb" in record.unmeasured:
        lines.append(f"memory      {record.unmeasured['perf.max_mem_mb']}")
    if "env.device" in record.unmeasured:
        lines.append(f"machine     it {UNKNOWN_MACHINE}; --machine NAME names it")
    lines.append("exact       no exact signals: learning is compared by its curves alone")
    lines += [f"note        {told}" for told in imported.told[:MOST_LINES]]
    if len(imported.told) > MOST_LINES:
        lines.append(f"note        {len(imported.told) - MOST_LINES} more notes in metrics.json")
    return [printable(line) for line in lines]
