"""The climb: what pays comes on, what is unsafe is blamed and left, what cannot be is said."""

from __future__ import annotations

import math
from typing import Any

import pytest
from scipy import stats

from canary.errors import RunFailed, UsageError
from canary.ladder.ladder import LadderRequest, ladder_at
from canary.ladder.levels import LEVELS, SWITCHES, Switch, always
from canary.ladder.measure import bottleneck_of, share_of_gain, speed_up
from canary.ladder.results import Ladder, LevelFound
from tests.unit.laddering import CPU, GPUS, Workshop, config_of, held_back, record_at, silent, site

PPO: dict[tuple[str, Any], float] = {
    ("speed.kv_cache", True): 2.0,
    ("speed.optimizer", "fused"): 1.1,
    ("dtype", "bfloat16"): 0.5,
    ("batch_size", 8): 1.25,
    ("batch_size", 2): 0.8,
    ("speed.rollout_batch", "whole"): 1.5,
}
DROPS_KL = Switch("no KL penalty", "basic", always(ppo__init_kl_coef=0.0))


def climbed(launch: Workshop, rounds: int = 2, **rest: Any) -> Ladder:
    """A ladder of PPO on the made-up machine."""
    machine = rest.pop("machine", CPU)
    known = rest.pop("known", SWITCHES)
    wanted = rest.pop("wanted", LEVELS)
    return ladder_at(site(config_of("ppo", **rest), launch, machine), wanted, rounds, silent, known)


def of(ladder: Ladder, level: str) -> LevelFound:
    return next(one for one in ladder.levels if one.level == level)


def test_speed_ups_multiply_up_the_levels() -> None:
    found = climbed(Workshop(PPO))
    basic, advanced, optimal = found.levels[1:]
    assert basic.cumulative is not None
    assert basic.cumulative.ratio == pytest.approx(2.2)
    assert advanced.step_up is not None
    assert advanced.step_up.ratio == pytest.approx(1.25)
    assert optimal.cumulative is not None
    assert optimal.cumulative.ratio == pytest.approx(2.2 * 1.25 * 1.5)
    assert found.top is optimal
    assert found.passed


def test_what_slows_the_machine_down_is_left_out_and_told() -> None:
    advanced = of(climbed(Workshop(PPO)), "advanced")
    assert "bfloat16" not in advanced.switched
    assert advanced.settings["dtype"] == "float32"
    reason = next(one.reason for one in advanced.skipped if one.switch == "bfloat16")
    assert reason == "does not pay here: 0.50x in a short trial"


def test_of_several_choices_the_fastest_comes_on() -> None:
    advanced = of(climbed(Workshop(PPO)), "advanced")
    tried = {
        one.settings["batch_size"]: one for one in advanced.tried if one.switch == "micro-batch"
    }
    assert set(tried) == {1, 2, 8}
    assert [size for size, one in tried.items() if one.kept] == [8]
    assert advanced.settings["gradient_accumulation_steps"] == 1


def test_a_machine_that_slows_down_all_the_while_changes_no_ratio_of_trials() -> None:
    """Two launches without any switch stand around those with one."""
    steady, drifting = (of(climbed(Workshop(PPO, drift=d)), "advanced") for d in (1.0, 0.98))
    assert [one.kept for one in steady.tried] == [one.kept for one in drifting.tried]


def test_trials_with_a_switch_have_a_limit_and_those_without_have_none() -> None:
    launch = Workshop(PPO)
    climbed(launch, wanted=("baseline", "advanced"))
    assert launch.limits[0] is None
    assert launch.limits[-1] is None
    assert all(limit is not None and limit >= 300 for limit in launch.limits[1:-1])


def test_a_switch_that_does_not_run_is_left_out_with_what_it_said() -> None:
    launch = Workshop(PPO, fails={("speed.rollout_batch", "whole"): "oom: out of memory"})
    optimal = of(climbed(launch), "optimal")
    reason = next(one.reason for one in optimal.skipped if "together" in one.switch)
    assert reason == "did not run here: oom: out of memory"
    assert optimal.settings["speed.rollout_batch"] == "micro"
    assert not optimal.problem


def test_an_unsafe_switch_is_caught_blamed_and_not_built_upon() -> None:
    launch = Workshop(PPO, learns={("ppo.init_kl_coef", 0.0): 0.01})
    found = climbed(launch, known=(*SWITCHES, DROPS_KL))
    basic, advanced = of(found, "basic"), of(found, "advanced")
    assert basic.unsafe
    assert not found.passed
    assert basic.guarded is not None
    assert basic.guarded.blamed == ("no KL penalty",)
    assert basic.guarded.broken is not None
    assert basic.guarded.broken.first is not None
    assert basic.guarded.broken.first.step == 2
    assert not advanced.unsafe
    assert "ppo.init_kl_coef" not in advanced.settings
    assert advanced.settings["speed.kv_cache"] is True
    assert ("no KL penalty", "unsafe at basic, left out from there on") in [
        (one.switch, one.reason) for one in advanced.skipped
    ]


def test_two_unsafe_switches_are_both_blamed() -> None:
    other = Switch("no discount", "basic", always(ppo__gamma=0.9))
    learns = {("ppo.init_kl_coef", 0.0): 0.01, ("ppo.gamma", 0.9): -0.02}
    found = climbed(Workshop(PPO, learns=learns), known=(*SWITCHES, DROPS_KL, other))
    guarded = of(found, "basic").guarded
    assert guarded is not None
    assert guarded.blamed == ("no KL penalty", "no discount")


def test_who_listens_hears_which_switch_is_tried_or_suspected() -> None:
    said: list[str] = []
    launch = Workshop(PPO, learns={("speed.logprobs", "completion"): 0.01})
    ladder_at(site(config_of("ppo"), launch), ("baseline", "basic", "advanced"), 1, said.append)
    assert "advanced: trying bfloat16" in said
    assert "advanced: trying micro-batch 2 4" in said
    assert "basic, only log-probabilities of completions alone" in launch.labels("guard")


def test_a_fault_behind_bfloat16_is_seen_in_float32() -> None:
    """A change of 1e-3 would pass for bfloat16's rounding; the guard puts float32 back first."""
    fast = PPO | {("dtype", "bfloat16"): 2.0}
    launch = Workshop(fast, learns={("dtype", "bfloat16"): 1e-3})
    assert not of(climbed(launch), "advanced").unsafe
    sly = Switch("sly", "advanced", always(ppo__lam=0.9))
    launch = Workshop(fast, learns={("ppo.lam", 0.9): 1e-3})
    guarded = of(climbed(launch, known=(*SWITCHES, sly)), "advanced").guarded
    assert guarded is not None
    assert guarded.exact is not None
    assert not guarded.exact.holds
    assert guarded.wide is None
    assert guarded.blamed == ("sly",)


def test_bfloat16_that_learns_something_else_is_unsafe_too() -> None:
    fast = PPO | {("dtype", "bfloat16"): 2.0}
    found = climbed(Workshop(fast, learns={("dtype", "bfloat16"): 0.5}))
    advanced, optimal = of(found, "advanced"), of(found, "optimal")
    assert advanced.guarded is not None
    assert advanced.guarded.exact is not None
    assert advanced.guarded.exact.holds
    assert advanced.guarded.blamed == ("bfloat16",)
    assert optimal.settings["dtype"] == "float32"


def test_a_level_that_is_not_asked_for_is_climbed_and_not_shown() -> None:
    launch = Workshop(PPO)
    found = climbed(launch, wanted=("baseline", "advanced"))
    assert [one.level for one in found.levels] == ["baseline", "advanced"]
    assert "KV cache" in found.levels[1].switched
    assert found.levels[1].settings["batch_size"] == 8
    assert set(launch.labels("timed")) == {"baseline", "advanced", "trl"}


def test_levels_alternate_forwards_and_backwards() -> None:
    launch = Workshop(PPO)
    climbed(launch, rounds=2, wanted=("baseline", "basic"))
    order = launch.labels("timed")
    assert order == ["baseline", "basic", "trl", "trl", "basic", "baseline"]


def test_a_drift_of_the_machine_leaves_the_ratio_of_alternating_levels() -> None:
    found = climbed(Workshop(PPO, drift=0.97), rounds=2, wanted=("baseline", "basic"))
    assert found.levels[1].cumulative is not None
    assert found.levels[1].cumulative.ratio == pytest.approx(2.2, rel=1e-9)


def test_no_ratio_where_the_work_was_not_equal() -> None:
    launch = Workshop(PPO, works={("speed.kv_cache", True): -100})
    found = climbed(launch, wanted=("baseline", "basic"))
    basic = of(found, "basic")
    assert basic.cumulative is None
    assert basic.problem == ("unequal work: 412 completion tokens in step 1 instead of 512")
    assert not found.passed
    assert found.top is None


def test_a_baseline_that_does_not_run_ends_the_ladder() -> None:
    with pytest.raises(RunFailed, match=r"the baseline level did not run: oom"):
        climbed(Workshop(fails={("speed.kv_cache", False): "oom"}))


def test_trl_s_own_share_of_the_gain_is_told_or_why_it_has_none() -> None:
    found = climbed(Workshop(PPO, trl=2.0)).trl
    assert found.share == pytest.approx(math.log(2.0) / math.log(2.2 * 1.25 * 1.5))
    found = climbed(Workshop(PPO, trl="trl 1.16.0 has no PPO")).trl
    assert found.share is None
    assert found.problem == "trl 1.16.0 has no PPO"


def test_devices_of_a_machine_are_used_where_it_pays() -> None:
    launch = Workshop(PPO | {("nproc", 2): 1.8, ("speed.liger", True): 1.1})
    optimal = of(climbed(launch, machine=GPUS), "optimal")
    assert optimal.settings["nproc"] == 2
    assert "liger kernels" in optimal.switched


def test_an_interval_is_student_s_over_the_rounds() -> None:
    fast, slow = [2.0, 2.2, 2.1, 2.3], [1.0, 1.05, 0.98, 1.1]
    found = speed_up(fast, slow)
    logs = [math.log(one / other) for one, other in zip(fast, slow, strict=True)]
    low, high = stats.t.interval(
        0.95, len(logs) - 1, loc=sum(logs) / len(logs), scale=stats.sem(logs)
    )
    assert found.low == pytest.approx(math.exp(low))
    assert found.high == pytest.approx(math.exp(high))
    assert found.sure


def test_one_round_has_no_interval_and_is_sure_of_nothing() -> None:
    found = speed_up([4.0], [1.0])
    assert (found.ratio, found.low, found.high) == (4.0, None, None)
    assert not found.sure


def test_a_share_of_no_gain_is_none() -> None:
    assert share_of_gain(1.2, 1.0) is None
    assert share_of_gain(2.0, 4.0) == pytest.approx(0.5)


def test_the_bottleneck_is_the_named_one_or_the_longest_phase() -> None:
    assert bottleneck_of(held_back(record_at(1.0))).startswith("data_loading: of the step waiting")
    assert bottleneck_of(record_at(1.0)) == "none was named; generation takes 75% of a step"


@pytest.mark.parametrize(
    ("levels", "rounds", "message"),
    [
        ("basic,fast", 3, "no level 'fast'"),
        ("baseline", 3, "names nothing above the baseline"),
        (None, 0, "at least 1"),
    ],
)
def test_a_wrong_request_is_refused(levels: str | None, rounds: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        LadderRequest(None, levels, rounds).wanted()


def test_levels_are_climbed_in_their_order_with_the_baseline_first() -> None:
    assert LadderRequest(None, "optimal, basic").wanted() == ("baseline", "basic", "optimal")
