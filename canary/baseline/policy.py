"""Permission to write the baseline branch: on GitHub, only jobs on the default branch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from canary.errors import UsageError

WRITING = ("push", "schedule", "workflow_dispatch")
"""Events that run a commit of the branch that they name."""
HEADS = "refs/heads/"


def require_writer(environ: Mapping[str, str], event: Mapping[str, Any] | None) -> None:
    """Return if the baseline may be written. Outside GitHub, a person may always write it.

    `environ`: the process's environment. `event`: the content of GITHUB_EVENT_PATH.

    Raises:
        UsageError: it may not; says why.
    """
    name = environ.get("GITHUB_EVENT_NAME", "")
    if not name and environ.get("GITHUB_ACTIONS") != "true":
        return
    reason = _refusal(name, environ.get("GITHUB_REF", ""), event or {})
    if reason:
        raise UsageError(
            f"{reason} may not write the baseline",
            "only push, schedule and workflow_dispatch on the default branch may",
        )


def _refusal(name: str, ref: str, event: Mapping[str, Any]) -> str:
    """Return what may not write, or an empty text."""
    if name == "workflow_run":
        return _refused_run(event)
    if name not in WRITING:
        return f"event {name}" if name else "an event without a name"
    default = _text(event, "repository", "default_branch")
    if not default:
        # A schedule runs only on the default branch, and its payload may be short.
        return "" if name == "schedule" else f"{name} without a known default branch"
    refs = {one for one in (ref, _text(event, "ref")) if one.startswith("refs/")}
    if name == "schedule" and not refs:
        return ""
    if refs != {HEADS + default}:
        where = ", ".join(sorted(refs - {HEADS + default})) or "no branch"
        return f"{name} on {where}"
    return ""


def _refused_run(event: Mapping[str, Any]) -> str:
    """Return why a run that followed another one may not write: that one must be allowed to."""
    trigger = _text(event, "workflow_run", "event")
    if trigger not in WRITING:
        return f"workflow_run after {trigger or 'an unknown event'}"
    repository = _text(event, "repository", "full_name")
    source = _text(event, "workflow_run", "head_repository", "full_name")
    if not repository or source != repository:
        return f"workflow_run of {source or 'an unknown repository'}"
    default = _text(event, "repository", "default_branch")
    branch = _text(event, "workflow_run", "head_branch")
    if not default or branch != default:
        return f"workflow_run on {branch or 'no branch'}"
    return ""


def _text(event: Mapping[str, Any], *keys: str) -> str:
    """Return a text from the event, or an empty one."""
    inner: Any = event
    for key in keys:
        inner = inner.get(key) if isinstance(inner, Mapping) else None
    return inner if isinstance(inner, str) else ""
