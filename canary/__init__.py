"""RLHF Canary: a short training run on every change, compared with the runs before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from canary.training.recorder import Recorder as Recorder

__version__ = "1.0.0"


def __getattr__(name: str) -> Any:
    """Import `canary.Recorder` on first use, because it needs torch."""
    if name == "Recorder":
        from canary.training.recorder import Recorder

        return Recorder
    raise AttributeError(f"module 'canary' has no attribute {name!r}")
