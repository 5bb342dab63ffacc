"""The base class of config sections, and a float that accepts `1e-4`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


def _plain_float(value: Any) -> Any:
    """Convert text such as 1e-4, which YAML 1.1 reads as text, to a number."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


Real = Annotated[float, BeforeValidator(_plain_float)]


class Strict(BaseModel):
    """Frozen; refuses unknown keys and converts no types silently."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, protected_namespaces=(), allow_inf_nan=False
    )
