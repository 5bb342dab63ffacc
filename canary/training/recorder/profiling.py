"""The Recorder's argument `profiler`: a config's section, checked without pydantic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from canary.errors import UsageError, did_you_mean, nearest

DEFAULTS: dict[str, Any] = {
    "enabled": True,
    "start_step": 20,
    "num_steps": 5,
    "output_dir": None,
    "record_shapes": False,
    "profile_memory": False,
    "with_stack": False,
}


def check_profiler(
    given: Mapping[str, Any], probe_steps: int, max_steps: int | None
) -> dict[str, Any]:
    """Return the section with its defaults.

    Raises:
        UsageError: an unknown key, a wrong value, or steps that cannot be profiled.
    """
    for key, value in given.items():
        if key not in DEFAULTS:
            raise UsageError(
                f"Recorder(profiler=...) has no {key!r}",
                did_you_mean(nearest(key, DEFAULTS), f"one of {', '.join(DEFAULTS)}"),
            )
        _check_value(key, value)
    settings = DEFAULTS | dict(given)
    if not settings["enabled"]:
        return settings
    start = settings["start_step"]
    last = start + settings["num_steps"] - 1
    if start <= probe_steps:
        raise UsageError(
            f"Recorder(profiler=...) begins at step {start}, but the first {probe_steps} steps "
            "collect the exact signals",
            f"set start_step above {probe_steps}, or lower probe_steps",
        )
    if max_steps is not None and last > max_steps:
        raise UsageError(
            f"Recorder(profiler=...) ends at step {last}, beyond max_steps ({max_steps})",
            "lower start_step or num_steps",
        )
    return settings


def _check_value(key: str, value: Any) -> None:
    expected = "a whole number from 1" if isinstance(DEFAULTS[key], int) else "a folder's name"
    if isinstance(DEFAULTS[key], bool):
        expected, fits = "True or False", isinstance(value, bool)
    elif key == "output_dir":
        fits = value is None or (isinstance(value, str) and bool(value))
    else:
        fits = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if not fits:
        raise UsageError(f"Recorder(profiler={{{key!r}: {value!r}}})", f"{key} must be {expected}")
