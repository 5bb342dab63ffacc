"""Who may write the baseline branch: on GitHub, runs of the default branch's own commits alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from canary.errors import UsageError

WRITING = ("push", "schedule", "workflow_dispatch")
"""Events that run a commit of the branch they name."""
HEADS = "refs/heads/"


def require_writer(environ: Mapping[str, str], event: Mapping[str, Any] | None) -> None:
    """Returns where the baseline may be written. `environ`: the process's variables; `event`: the
    content of GITHUB_EVENT_PATH. Outside GitHub, a person may.

    Raises:
        UsageError: says why not.
    """
    name = environ.get("GITHUB_EVENT_NAME", "")
    if not name and environ.get("GITHUB_ACTIONS") != "true":
        return
    reason = _refusal(name, environ.get("GITHUB_REF", ""), event or {})
    if reason:
        raise UsageError(
            f"{reason} does not write the baseline",
            "only push, schedule and workflow_dispatch on the default branch do",
        )


def _refusal(name: str, ref: str, event: Mapping[str, Any]) -> str:
    """What may not write; empty where it may."""
    if name == "workflow_run":
        return _refused_run(event)
    if name not in WRITING:
        return f"event {name}" if name else "an event without a name"
    default = _text(event, "repository", "default_branch")
    if not default:
        # A schedule runs on no other branch, and its payload may be short.
        return "" if name == "schedule" else f"{name} without a known default branch"
    told = {one for one in (ref, _text(event, "ref")) if one.startswith("refs/")}
    if name == "schedule" and not told:
        return ""
    if told != {HEADS + default}:
        where = ", ".join(sorted(told - {HEADS + default})) or "no branch"
        return f"{name} on {where}"
    return ""


def _refused_run(event: Mapping[str, Any]) -> str:
    """A run that followed another one may write where that one might have."""
    trigger = _text(event, "workflow_run", "event")
    if trigger not in WRITING:
        return f"workflow_run after {trigger or 'an unknown event'}"
    own = _text(event, "repository", "full_name")
    source = _text(event, "workflow_run", "head_repository", "full_name")
    if not own or source != own:
        return f"workflow_run of {source or 'an unknown repository'}"
    default = _text(event, "repository", "default_branch")
    branch = _text(event, "workflow_run", "head_branch")
    if not default or branch != default:
        return f"workflow_run on {branch or 'no branch'}"
    return ""


def _text(event: Mapping[str, Any], *keys: str) -> str:
    """A text within the event; empty where there is none."""
    inner: Any = event
    for key in keys:
        inner = inner.get(key) if isinstance(inner, Mapping) else None
    return inner if isinstance(inner, str) else ""
