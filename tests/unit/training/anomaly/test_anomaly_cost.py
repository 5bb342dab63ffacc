"""What the detectors cost a step of a model of 1.3 million parameters on a CPU."""

from __future__ import annotations

import statistics
import time

import pytest
import torch

from bench.anomaly import SmallLlama

pytestmark = pytest.mark.train


def test_a_watched_step_costs_less_than_a_hundredth_of_it() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        loop = SmallLlama(4, 256)
        assert 1.2e6 < loop.parameters < 1.4e6
        steps, own = [], []
        for number in range(26):
            began = time.thread_time()
            inside = loop.step(watched=True, clips=False)
            if number:
                steps.append(time.thread_time() - began - inside)
                own.append(inside)
    finally:
        torch.set_num_threads(threads)
    assert statistics.fmean(own) < 0.01 * statistics.fmean(steps)
