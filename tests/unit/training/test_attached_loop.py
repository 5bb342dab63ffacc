"""What the record of a loop under `canary exec` says of parts that it lacks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import torch

from canary.protocol.job import Result
from canary.training.recorder.attached import JobKeeper


def test_a_look_that_failed_is_told_beside_what_the_loop_did_not_show() -> None:
    failed = Result(status="completed", unmeasured={"exact": "the look failed"})
    launch = SimpleNamespace(launch=0, finished=lambda *_: failed)
    keeper = JobKeeper(cast(Any, SimpleNamespace(stop_after=None, launch=0)), cast(Any, launch))
    loop = SimpleNamespace(device=torch.device("cpu"), unmeasured=lambda: {"a": "of the loop"})
    keeper._loop = cast(Any, loop)
    collector = SimpleNamespace(steps=2, unmeasured=lambda: {"b": "of the steps"})
    assert keeper._result(cast(Any, collector)).unmeasured == {
        "exact": "the look failed",
        "a": "of the loop",
        "b": "of the steps",
    }
