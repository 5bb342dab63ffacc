"""The base of config sections: frozen, strict, and plain numbers as YAML users write them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


def _plain_float(value: Any) -> Any:
    """YAML 1.1 reads 1e-4 as text; it is a number to everyone else."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


Real = Annotated[float, BeforeValidator(_plain_float)]


class Strict(BaseModel):
    """Frozen, unknown keys refused, no silent conversion of types."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, protected_namespaces=(), allow_inf_nan=False
    )
