"""Show the answers of `canary golden` as text, Markdown or JSON."""

from __future__ import annotations

import sys
from typing import Any

from canary.golden.check import Checked, Far, MetricCheck
from canary.golden.refresh import MetricRefresh, Refreshed
from canary.golden.replay import Replayed
from canary.record import jsonio
from canary.report.escape import on_lines
from canary.report.lines import terminal_width, wrapped
from canary.report.render import environment, tidy


def check_text(found: Checked, form: str) -> str:
    """Return the answer of a check in one of the formats, ending with a line break."""
    if form == "json":
        return jsonio.dumps(_document(found), indent=1) + "\n"
    found = on_lines(found)
    kind = "md" if form == "markdown" else "txt"
    text = environment().get_template(f"golden_check.{kind}.jinja").render(found=found)
    return wrapped(tidy(text), terminal_width(sys.stdout) if kind == "txt" else None)


def _document(found: Checked) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "verdict": found.verdict,
        "first_line": found.first_line,
        "file": found.file,
        "format": found.schema,
        "run": found.run_id,
        "metrics": [_metric(one) for one in found.metrics],
        "not_checked": list(found.not_checked),
        "cause": list(found.cause),
        "replay": _replay(found.replayed),
        "notes": list(found.notes),
    }


def _replay(found: Replayed | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "verdict": found.verdict,
        "step": found.step,
        "steps_twice": list(found.steps_twice),
        "gives": found.gives or None,
        "message": found.sentence,
        "notes": list(found.notes),
    }


def _metric(one: MetricCheck) -> dict[str, Any]:
    return {
        "name": one.tag,
        "metric": one.name,
        "status": "equal" if one.equal else "differs",
        "tolerance": str(one.tolerance),
        "steps": one.steps,
        "differing_steps": one.differing,
        "first": _far(one.first),
        "largest": _far(one.largest),
        "missing_steps": list(one.missing),
        "extra_steps": list(one.extra),
        "mean_difference": one.drift,
        "launch": one.launch,
        "message": one.sentence(),
    }


def _far(far: Far | None) -> dict[str, Any] | None:
    if far is None:
        return None
    return {
        "step": far.step,
        "golden": far.golden,
        "run": far.value,
        "difference": far.value - far.golden,
        "distance": far.distance,
    }


def refresh_text(found: Refreshed, form: str) -> str:
    """Return the answer of a refresh in one of the formats, ending with a line break."""
    if form == "json":
        return jsonio.dumps(_refresh_document(found), indent=1) + "\n"
    kind = "md" if form == "markdown" else "txt"
    template = environment().get_template(f"golden_refresh.{kind}.jinja")
    text = template.render(found=on_lines(found), worse=_worse)
    return wrapped(tidy(text), terminal_width(sys.stdout) if kind == "txt" else None)


def _worse(one: MetricRefresh) -> str:
    if one.agreed.problem:
        return "not judged"
    if not one.judged:
        return "no direction known"
    if one.beyond:
        return f"beyond its limit ({one.beyond.sentence()})"
    if one.moved.equal:
        return "not worse"
    return f"within its limit ({one.nearest.sentence()})"


def _refresh_document(found: Refreshed) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "verdict": "refused" if found.refused else ("refreshed" if found.moved else "unchanged"),
        "first_line": found.first_line,
        "file": found.file,
        "format": found.schema,
        "reason": found.reason,
        "accepted": found.accepted,
        "accepted_metrics": list(found.worse) if found.accepted else [],
        "runs": list(found.runs),
        "uncommitted_runs": list(found.uncommitted),
        "metrics": [
            {
                **_metric(one.moved),
                "status": "refused"
                if one.agreed.problem
                else ("equal" if one.moved.equal else "moved"),
                "tolerance": str(one.golden.tolerance),
                "repeats": one.agreed.count,
                "needed_repeats": one.agreed.needed,
                "worse": one.beyond.sentence() if one.beyond else None,
                "message": one.agreed.problem or one.words(),
            }
            for one in found.metrics
        ],
        "cause": found.cause.sentences(),
        "refused": list(found.refused),
    }
