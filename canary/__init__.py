"""RLHF Canary: a short training run on every change, compared with the runs before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from canary.relations.reported import engine_weights as engine_weights
    from canary.relations.reported import reward_function as reward_function
    from canary.relations.reported import sampled as sampled
    from canary.training.recorder import Recorder as Recorder

__version__ = "1.0.0"


def __getattr__(name: str) -> Any:
    """Import `canary.Recorder` on first use, because it needs torch; the others with it."""
    if name == "Recorder":
        from canary.training.recorder import Recorder

        return Recorder
    if name in ("engine_weights", "reward_function", "sampled"):
        from canary.relations import reported

        return getattr(reported, name)
    raise AttributeError(f"module 'canary' has no attribute {name!r}")
