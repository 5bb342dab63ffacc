"""Any value of a record may be a stranger's. The record is refused, or compared and shown."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from canary.compare.stats import compare_to_baseline
from canary.errors import CanaryError
from canary.record.folder import parse_record
from canary.report.document import document
from canary.report.render import render

ROOT = Path(__file__).parents[3]
FILES = ("baselines/examples/sft_smoke.json", "tests/data/ppo_look.json")
VALUES: tuple[Any, ...] = (
    None,
    0,
    -1,
    1e308,
    10**30,
    "nan",
    "-inf",
    "x" * 200,
    [],
    {},
    [None],
    0.5,
)
Place = tuple[str | int, ...]


def places(part: Any, here: Place = ()) -> Iterator[Place]:
    """Where a record has values, four of each list at the most."""
    pairs = part.items() if isinstance(part, dict) else enumerate(part[:4])
    for key, value in pairs:
        yield (*here, key)
        if isinstance(value, dict | list):
            yield from places(value, (*here, key))


def survives(file: str, changes: dict[Place, Any]) -> None:
    """Both ways, in every form; anything but an error of the canary's own is raised."""
    whole = json.loads((ROOT / file).read_text())
    other = copy.deepcopy(whole) | {"run_id": "another"}
    for place, value in changes.items():
        part: Any = other
        try:
            for key in place[:-1]:
                part = part[key]
            part[place[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took it away
    try:
        sides = parse_record(other, Path(file)), parse_record(whole, Path(file))
        for current, baseline in (sides, sides[::-1]):
            found = compare_to_baseline(current, baseline)
            document(found)
            render(found, "text")
            render(found, "markdown")
    except CanaryError:
        return


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("exact", "trajectory", "rl", "kl", 3), 1e308),
        (("exact", "trajectory", "losses"), [1e308] * 6),
        (("config", "max_steps"), [None]),
        (("config", "num_generations"), [None]),
    ],
)
def test_numbers_that_are_none_or_out_of_all_proportion_are_compared(
    place: Place, value: Any
) -> None:
    for file in FILES:
        survives(file, {place: value})


@pytest.mark.parametrize("seed", range(16))
def test_whatever_a_record_holds_it_is_refused_or_compared(seed: int) -> None:
    random = Random(seed)
    file = random.choice(FILES)
    every = list(places(json.loads((ROOT / file).read_text())))
    chosen = random.sample(every, random.choice((1, 1, 2, 4)))
    survives(file, {place: random.choice(VALUES) for place in chosen})


def test_learning_rates_out_of_all_proportion_are_compared() -> None:
    """Their ratio is too small for a number."""
    whole = json.loads((ROOT / FILES[0]).read_text())
    sides = []
    for run_id, rate in (("tiny", 1e-20), ("huge", 1e308)):
        other = copy.deepcopy(whole) | {"run_id": run_id}
        rates = other["exact"]["trajectory"]["learning_rates"]
        rates[1] = rate
        sides.append(parse_record(other, Path(FILES[0])))
    current, baseline = sides
    found = compare_to_baseline(current, baseline)
    assert found.check("first_update").status == "changed"
