"""Causes: one mechanism per module. A cause looks at facts, never at names of runs or changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from canary.compare.causes import (
    adapter,
    communication,
    data,
    dataloader,
    environment,
    host,
    io,
    kernel,
    memory,
    named_signals,
    numerics,
    objective,
    optimizer,
    rollout,
    settings,
    tokenization,
)
from canary.compare.diagnosis.evidence import Finding
from canary.compare.diagnosis.facts import Facts

Cause: TypeAlias = Callable[[Facts], Iterator[Finding]]
"""Yields the findings for one mechanism from the facts of a comparison; often none."""

CAUSES: tuple[Cause, ...] = (
    tokenization.findings,
    data.findings,
    adapter.findings,
    numerics.findings,
    objective.findings,
    rollout.findings,
    optimizer.findings,
    kernel.findings,
    memory.findings,
    communication.findings,
    io.findings,
    dataloader.findings,
    host.findings,
    environment.findings,
    settings.findings,
    named_signals.findings,
)
"""Equally likely suspects are listed in this order."""
