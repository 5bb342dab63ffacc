"""What `canary golden` answers for the runs of the README's example, for docs/golden.md."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from canary.compare.stats import load_metrics
from canary.golden.checking import checked_files
from canary.golden.formats.schema import Schema
from canary.golden.refresh import Ask, refresh
from canary.golden.schemas import SCHEMAS
from canary.golden.view import check_text, refresh_text
from canary.golden.write import write
from canary.record import jsonio
from tests.contract.pages import ROOT

RECORDS = ROOT / "baselines" / "examples" / "own_script"
SHAS = {"baseline": "4" * 40, "current": "7" * 40}
SHOWN = "golden/sft.json"
DAY = datetime(2026, 1, 1, tzinfo=UTC)


def _run(folder: Path, side: str, name: str) -> Path:
    """A run with the losses and gradient norms of a record's probe."""
    whole = load_metrics(RECORDS / f"{side}.json")
    git: Any = {"sha": SHAS[side], "dirty": False}
    record = whole.model_copy(update={"run_id": name, "git": git})
    trajectory = record.exact["trajectory"]
    losses, norms = trajectory["losses"], trajectory["grad_norms"]
    rows: list[dict[str, Any]] = [
        {"launch": 1, "step": step, "loss": loss, "grad_norm": norm, "rl": {}}
        for step, (loss, norm) in enumerate(zip(losses, norms, strict=True), 1)
    ]
    (folder / name).mkdir()
    (folder / name / "metrics.json").write_text(jsonio.dumps(record.model_dump()))
    (folder / name / "steps.jsonl").write_text("".join(jsonio.dumps(row) + "\n" for row in rows))
    return folder / name


def check_example() -> str:
    """A check that differs."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, file = Path(scratch), Path(scratch) / "sft.json"
        write(_run(folder, "baseline", "main"), file, "canary", [], {})
        found = checked_files(_run(folder, "current", "branch"), file, [], {}, folder)
        text = check_text(replace(found, file=SHOWN), "text")
    return f"```text\n{text}```\n"


def refresh_example() -> str:
    """The page of a refresh."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, file = Path(scratch), Path(scratch) / "sft.json"
        write(_run(folder, "baseline", "main"), file, "canary", [], {})
        runs = tuple(_run(folder, "current", f"branch-{number}") for number in (1, 2))
        ask = Ask(runs, file, "the new template masks them, agreed in review", repository=folder)
        page = refresh_text(replace(refresh(ask, DAY), file=SHOWN), "markdown")
    return f"```markdown\n{page}```\n"


def schemas_table() -> str:
    """The schemas with their sources and default tolerances."""
    rows = [
        f"| `{one.name}` | {_project(one)} | {', '.join(f'`{name}`' for name in one.metrics)} "
        f"| {'nothing else' if one.only else 'any metric'} |"
        for one in SCHEMAS.values()
    ]
    head = "| format | read in | default metrics | may also hold |\n|---|---|---|---|"
    return "\n".join([head, *rows]) + "\n"


def _project(schema: Schema) -> str:
    if not schema.project:
        return "this repository"
    name, commit = schema.project.split()
    return f"[{name}](https://github.com/{name}/tree/{commit}) at `{commit[:12]}`"
