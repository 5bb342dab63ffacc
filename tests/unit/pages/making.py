"""Pages made from records, and what a page holds when it is read back."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any

from canary.compare.diagnosis.source_changes import SourceChanges
from canary.compare.stats import compare_to_baseline
from canary.record.step_row import Row
from canary.record.types import RunRecord
from canary.report.charts.sides import ShownRun, ShownSides
from canary.report.comparison_page import comparisons_page

PHASES = ("data", "forward", "backward", "optimizer", "logging", "other")


def rows(steps: int, *, scale: float = 1.0) -> tuple[Row, ...]:
    """Rows as a DPO training with checkpoints and a device would leave them."""
    made: list[Row] = []
    for step in range(1, steps + 1):
        wall = scale * (0.1 + 0.01 * (step * 7919 % 13))
        row: Row = {
            "launch": 1,
            "step": step,
            "wall_s": wall,
            "phases": {name: wall / len(PHASES) for name in PHASES},
            "loss": 0.7 - 0.001 * (step % 17),
            "grad_norm": 2.0 + 0.1 * (step % 5),
            "rl": {
                "reward": 0.1 * (step % 9),
                "kl": 0.001 * step,
                "entropy": 2.0 - 0.001 * step,
                "rewards/margins": 0.01 * (step % 11),
                "rewards/accuracies": 0.5 + 0.01 * (step % 3),
            },
            "rss_bytes": 600 * 2**20 + step * 2**14,
            "allocated_bytes": 300 * 2**20 + (step % 8) * 2**20,
            "reserved_bytes": 400 * 2**20,
            "peak_bytes": 380 * 2**20,
        }
        if step % 50 == 0:
            row["phases"] = {**row["phases"], "checkpoint": 0.02}
        made.append(row)
    return tuple(made)


def page_of(
    current: Sequence[RunRecord],
    baseline: Sequence[RunRecord] = (),
    *,
    steps: int = 0,
    source: SourceChanges | None = None,
) -> str:
    """The page of a comparison; with `steps` each run has that many rows."""
    found = compare_to_baseline(list(current), list(baseline), source=source)
    return page_of_sides(
        ShownSides(
            tuple(ShownRun(record, rows(steps)) for record in current),
            tuple(ShownRun(record, rows(steps)) for record in baseline),
            found,
        ),
    )


def page_of_sides(sides: ShownSides) -> str:
    """The page of these sides."""
    return comparisons_page((("", sides),))


class Read(HTMLParser):
    """A page as a browser without scripts holds it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._inside: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._inside:
            while self._inside.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self._inside):
            self.text += f" {data.strip()}"

    def named(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of each element of that name."""
        return [attributes for name, attributes in self.tags if name == tag]


def numbers(page: str, chart: str) -> Any:
    """The numbers of one chart: `columns` and `rows`."""
    pattern = rf'<script type="application/json" id="numbers-{chart}">(.*?)</script>'
    found = re.search(pattern, page, re.DOTALL)
    assert found, chart
    return json.loads(found[1])
