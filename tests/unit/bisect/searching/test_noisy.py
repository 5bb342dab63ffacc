"""The noisy search finds a change in noise, and says so where there is none to find."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from bench.simulated_launches import PLACES, Machine
from canary.bisect.model import Seen, State
from canary.bisect.searching import noisy_search
from tests.unit.bisect.searching.histories import asked, line


def launches(
    culprit: int, *, seed: int = 1, noise: float = 0.02, change: float = 0.2, place: str = "steady"
) -> Callable[[State], Seen]:
    """What launches on a simulated machine show."""
    machine = Machine(random.Random(seed), PLACES[place], noise, change, culprit)
    return lambda state: Seen(state, value=machine.launch(state))


def test_a_large_change_is_found_in_few_launches() -> None:
    search = noisy_search(line(64), spread=None, effect=math.log(1.03))
    log = asked(search, launches(20))
    assert search.answer().suspects == (20,)
    assert search.answer().decided
    assert len(log) < 25
