"""A record of a stranger may be large: no verb takes minutes over it, whatever it is full of."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from canary.compare.paths import Request, compared_paths
from canary.github.comment import LIMIT
from canary.github.section import section
from canary.github.status import Source
from canary.report.escape import markdown_cell, markdown_code
from canary.report.render import render, tidy
from tests.unit.cli.test_terminal import with_value
from tests.unit.comparing import example

MILLION = 1_000_000
MANY = 20_000
SOURCE = Source("a" * 40)


@pytest.mark.parametrize("escape", [markdown_cell, markdown_code, tidy])
def test_escaping_a_text_takes_time_by_its_length_alone(escape: Callable[[str], str]) -> None:
    words = ("a", "1", "1111 ", "1-", "1" * 40 + "a ", "@", "www.", "gh-", "mailto:", ":", "#")
    for part in (*words, "|", "`", " ", "\n", "\\", "<!--", "\x1b", "ä"):
        begun = time.process_time()
        escape(part * (MILLION // 5 // len(part)))
        assert time.process_time() - begun < 2, part


def texts(side: int) -> dict[str, Any]:
    return {f"key_{place}": f"text {place} of side {side}" for place in range(MANY)}


def launches(side: int) -> list[dict[str, Any]]:
    return [launch.model_dump() for launch in example().launches] * MANY


PLACES: tuple[tuple[tuple[str, ...], Callable[[int], Any]], ...] = (
    (("config",), texts),
    (("env", "packages"), texts),
    (("exact", "data"), texts),
    (("exact", "model"), texts),
    (("launches",), launches),
    (("notes",), lambda side: list(texts(side).values())),
    (("name",), lambda side: "[|" * MILLION),
    (("config", "model_name"), lambda side: f"{side}" + "[|" * MILLION),
    (("config",), lambda side: {f"{place}" + "[|" * 100_000: side for place in range(20)}),
)


@pytest.mark.spread(2)
@pytest.mark.parametrize(("place", "filled"), PLACES)
def test_no_part_of_a_record_makes_an_answer_take_minutes(
    tmp_path: Path, place: tuple[str, ...], filled: Callable[[int], Any]
) -> None:
    known = example().model_dump()
    paths = []
    for side in (0, 1):
        inner: Any = known
        for key in place:
            inner = inner[key]
        value = filled(side)
        whole = {**inner, **value} if isinstance(inner, dict) else value
        document = with_value({**known, "run_id": f"run-{side}"}, place, whole)
        paths.append(tmp_path / f"{side}.json")
        paths[side].write_text(json.dumps(document, default=str), encoding="utf-8")
    begun = time.process_time()
    compared = compared_paths(Request((paths[1],), (paths[0],)))
    for form in ("text", "markdown", "json"):
        render(compared.found, form)
    assert len(section(compared.found, SOURCE, LIMIT)) <= LIMIT
    assert time.process_time() - begun < 60
