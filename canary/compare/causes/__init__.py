"""Causes: one table of rows, by subject. A row looks at facts, never at names of runs."""

from __future__ import annotations

from canary.compare.causes import inputs, learning, parameters, rollout, settings, work
from canary.compare.diagnosis.row import Row

CAUSES: tuple[Row, ...] = (
    *inputs.ROWS,
    *parameters.ROWS,
    *learning.ROWS,
    *rollout.ROWS,
    *work.ROWS,
    *settings.ROWS,
)
"""Equally likely suspects are listed in this order."""
