"""The text of `canary import`."""

from __future__ import annotations

from canary.errors import printable
from canary.imports.preset import preset_file, shipped, shipped_names
from canary.imports.reading import Imported
from canary.imports.record import preset_words, summary_of
from canary.imports.series import listed
from canary.record.curves import UNKNOWN_MACHINE
from canary.record.types import RunRecord

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


def preset_lines() -> list[str]:
    """Return one line per shipped preset."""
    found = [shipped(name) for name in shipped_names()]
    wide = max(len(one.framework) for one in found)
    return [
        f"{one.framework:<{wide}}  {one.version or '-':<24.24}  {len(one.metrics):>2} metrics  "
        f"{one.repository}"
        for one in found
    ]


def preset_text(name: str) -> str:
    """Return a preset's YAML. Raises InputError if there is none."""
    return preset_file(name).read_text(encoding="utf-8").rstrip("\n")
