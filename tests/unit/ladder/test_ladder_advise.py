"""The advice: what is measured alone, ranked, refused, and put together."""

from __future__ import annotations

from typing import Any

import pytest

from canary.errors import RunFailed
from canary.ladder.advise import advice_at
from canary.ladder.report import report_of
from canary.ladder.results import Advice, Advised
from canary.ladder.switches import SWITCHES, Switch
from tests.unit.laddering import Workshop, config_of, site

FASTER: dict[tuple[str, Any], float] = {
    ("speed.kv_cache", True): 2.0,
    ("speed.optimizer", "fused"): 1.1,
    ("dtype", "bfloat16"): 0.5,
    ("batch_size", 8): 1.25,
    ("batch_size", 2): 1.05,
}


SLOW = {"kv_cache": False, "rollout_batch": "micro", "shared_forward": False}
"""What a config of PPO would not have by itself."""


def advised(launch: Workshop, **rest: Any) -> Advice:
    known = rest.pop("known", SWITCHES)
    config = config_of("ppo", **{"speed": SLOW, **rest})
    return advice_at(site(config, launch, rounds=3, known=known))


def of(advice: Advice, switch: str) -> list[Advised]:
    return [one for one in advice.candidates if one.switch == switch]


def test_switches_are_advised_in_the_order_of_their_gain() -> None:
    found = advised(Workshop(FASTER))
    assert list(found.settings) == [
        "speed.kv_cache",
        "batch_size",
        "gradient_accumulation_steps",
        "speed.optimizer",
    ]
    gains = [one.gain.ratio for one in found.candidates if one.gain]
    assert gains == sorted(gains, reverse=True)
    assert report_of(found).answer == "3 switches pay, together 2.75x [2.75, 2.75]."


def test_each_switch_is_measured_alone_on_the_user_s_own_config() -> None:
    launch = Workshop(FASTER)
    advised(launch, learning_rate=1e-4)
    kinds = [settings for kind, label, settings in launch.started if kind == "timed"]
    alone = [one for one in kinds if one == {"fixed_length": True, "speed.kv_cache": True}]
    assert len(alone) == 3
    assert {"fixed_length": True} in kinds


def test_what_is_no_faster_or_slower_is_not_advised() -> None:
    found = advised(Workshop(FASTER))
    assert "dtype" not in found.settings
    assert of(found, "shared forward")
    assert not any(one.worth_it for one in of(found, "shared forward"))


def test_what_is_in_the_config_already_is_skipped() -> None:
    found = advised(Workshop(FASTER), dtype="bfloat16")
    assert ("bfloat16", "already in the config") in [
        (one.switch, one.reason) for one in found.skipped
    ]


def test_what_is_in_force_by_default_is_not_measured() -> None:
    """PPO's own defaults, in a config that says nothing of them."""
    launch = Workshop()
    found = advised(launch, speed={})
    reasons = {one.switch: one.reason for one in found.skipped}
    by_default = {
        "vectorised advantages",
        "log-probabilities of completions alone",
        "KV cache",
        "shared forward",
        "SDPA",
        "sampling of all prompts together",
    }
    assert {name for name, why in reasons.items() if why == "on by default"} == by_default
    assert not by_default & {one.switch for one in found.candidates}
    assert not by_default & set(launch.labels("guard"))
    assert {"fused optimizer", "rows bucketed by length"} <= {
        one.switch for one in found.candidates
    }


def test_what_trainer_args_say_is_left_alone_and_not_called_broken() -> None:
    found = advised(Workshop(FASTER), trainer_args={"optim": "adafactor"})
    assert ("fused optimizer", "trainer_args.optim sets it") in [
        (one.switch, one.reason) for one in found.skipped
    ]
    assert not of(found, "fused optimizer")


def test_an_unsafe_switch_is_neither_timed_nor_advised_however_fast() -> None:
    planted = Switch("no KL penalty", "basic", {"ppo.init_kl_coef": (..., 0.0)})
    launch = Workshop(
        FASTER | {("ppo.init_kl_coef", 0.0): 9.0}, learns={("ppo.init_kl_coef", 0.0): 0.01}
    )
    found = advised(launch, known=(*SWITCHES, planted))
    (one,) = of(found, "no KL penalty")
    assert not one.worth_it
    assert one.guard is not None
    assert not one.guard.holds
    assert "ppo.init_kl_coef" not in found.settings
    assert not any("init_kl_coef" in label for label in launch.labels("timed"))


def test_what_is_unsafe_only_together_is_said() -> None:
    class Quarrelsome(Workshop):
        """Two switches that are harmless alone."""

        def guard(self, label: str, settings: Any, *, records: bool = False) -> Any:
            both = settings.get("speed.kv_cache") and settings.get("batch_size") == 8
            more = {"ppo.gamma": 0.5} if both else {}
            return super().guard(label, {**settings, **more}, records=records)

    found = advised(Quarrelsome(FASTER, learns={("ppo.gamma", 0.5): 0.1}))
    assert not found.passed
    assert "UNSAFE together" in report_of(found).answer


def test_other_work_is_no_gain() -> None:
    found = advised(Workshop(FASTER, works={("speed.kv_cache", True): -1}))
    (one,) = of(found, "KV cache")
    assert one.gain is None
    assert one.problem.startswith("unequal work")
    assert "speed.kv_cache" not in found.settings


def test_a_config_that_does_not_run_is_an_error() -> None:
    with pytest.raises(RunFailed, match="the config itself did not run: oom"):
        advised(Workshop(fails={("fixed_length", True): "oom"}))


def test_in_a_config_of_less_precision_float32_is_put_back_first() -> None:
    """A fault of 1e-3 would pass for bfloat16's rounding, alone and together."""
    launch = Workshop(FASTER, learns={("speed.optimizer", "fused"): 1e-3})
    found = advised(launch, dtype="bfloat16")
    assert not of(found, "fused optimizer")[0].worth_it
    assert "speed.optimizer" not in found.settings
    recorded = [settings for kind, _, settings in launch.started if kind == "record"]
    assert [one["dtype"] for one in recorded] == ["float32"]
    together = [s.get("dtype") for kind, label, s in launch.started if label == "all of these"]
    assert together == ["float32", None]


def test_all_at_once_is_guarded_in_float32_though_bfloat16_is_among_it() -> None:
    launch = Workshop({**FASTER, ("dtype", "bfloat16"): 1.5})
    assert advised(launch).settings["dtype"] == "bfloat16"
    together = [s.get("dtype") for kind, label, s in launch.started if label == "all of these"]
    assert together == [None, "bfloat16"]


def test_what_could_not_be_guarded_is_not_called_broken() -> None:
    launch = Workshop(FASTER, unguarded={("speed.kv_cache", True): "oom: out of memory"})
    found = of(advised(launch), "KV cache")[0]
    assert found.problem == "not timed: its guard did not run"
    assert found.guard is not None
    assert not found.guard.broken
