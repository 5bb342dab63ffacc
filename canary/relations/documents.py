"""The texts of a micro-batch, and what was trained of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LEAST = 1e-3
"""Of the largest weight of a document; below, a token is not trained on."""
SURE = 0.95
"""Share of trained tokens whose label must be the next token."""

Example = Mapping[str, Any]
"""A row of a dataset."""


@dataclass(frozen=True)
class Document:
    """One text of a micro-batch, without padding."""

    row: int
    first: int
    """Its first column in the row."""
    ids: tuple[int, ...]
    weights: tuple[float | None, ...]
    """How much each token was raised; 0 if it was not trained on, None if that is not known."""
    off: int = 0
    """Trained tokens whose label is another token than the next one."""
    is_widest: bool = False
    """Whether it fills its row."""
    is_end_known: bool = False
    """Whether an attention mask, or the next document, says where it ends."""

    @property
    def trained(self) -> tuple[bool | None, ...]:
        """Whether each token is trained on; None if that is not known."""
        known = [abs(one) for one in self.weights if one is not None]
        least = LEAST * max(known, default=0.0)
        return tuple(None if one is None else abs(one) > least for one in self.weights)

    @property
    def raised(self) -> float:
        """The sum of all weights: positive if the text is raised, negative if it is lowered."""
        return sum(one for one in self.weights if one is not None)

    @property
    def is_next_token(self) -> bool:
        """Whether the labels are the next tokens."""
        return self.off <= (1 - SURE) * sum(map(bool, self.trained))
