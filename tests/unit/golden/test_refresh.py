"""New golden values need repeats that agree, a reason, and nothing worse in silence."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from canary.errors import InputError, UsageError
from canary.golden.model import GoldenMetric, Series
from canary.golden.refresh import Ask, Refreshed, refresh
from canary.golden.repeats import agreement, factor, needed_repeats
from canary.golden.schemas import read_golden
from canary.golden.tolerance import Tolerance, parse_tolerance
from canary.golden.view import refresh_text
from canary.golden.write import write
from canary.record.types import RunRecord
from tests.unit.comparing import altered, example
from tests.unit.golden.golden_runs import LOSSES, NORMS, run_folder, shifted
from tests.unit.hostile import PAYLOADS

MOVED = {"loss": shifted(LOSSES, -1e-3), "grad_norm": NORMS}
WORSE = {"loss": tuple(1.5 * value for value in LOSSES), "grad_norm": NORMS}


def golden_file(
    root: Path, form: str = "canary", tolerances: dict[str, Tolerance] | None = None
) -> Path:
    file = root / "golden.json"
    write(run_folder(root, "old"), file, form, [], tolerances or {})
    return file


def refreshed(file: Path, *runs: Path, **rest: Any) -> Refreshed:
    given = {"repository": file.parent, **rest}
    return refresh(Ask(runs, file, given.pop("reason", "a new kernel"), **given))


def repeats(root: Path, values: Any, count: int = 2, **rest: Any) -> list[Path]:
    return [run_folder(root, f"new-{number}", values, **rest) for number in range(count)]


def test_two_equal_repeats_replace_the_values(tmp_path: Path) -> None:
    file = golden_file(tmp_path)
    found = refreshed(file, *repeats(tmp_path, MOVED, sha="b" * 40))
    assert found.refused == ()
    assert found.exit_code == 0
    golden = read_golden(file)
    assert golden.metrics["loss"].series.values == MOVED["loss"]
    assert golden.record is not None
    assert golden.record.run_id == "new-1"
    entry = golden.history[-1]
    assert (entry.reason, entry.commit) == ("a new kernel", "b" * 40)
    assert entry.runs == ["new-0", "new-1"]
    assert set(entry.moved) == {"loss"}
    assert entry.moved["loss"].first_step == 3


def test_one_run_is_not_enough(tmp_path: Path) -> None:
    file = golden_file(tmp_path)
    before = file.read_bytes()
    found = refreshed(file, *repeats(tmp_path, MOVED, 1))
    assert found.exit_code == 1
    assert found.refused == (
        "there is 1 run, 2 that agree are needed: train once more and name all runs",
    )
    assert file.read_bytes() == before
    assert refresh_text(found, "text").count("train once more") == 1
    assert refresh_text(found, "markdown").count("train once more") == 1
    (loss, _) = json.loads(refresh_text(found, "json"))["metrics"]
    assert "train once more" in loss["message"]


def test_launches_of_one_run_are_repeats(tmp_path: Path) -> None:
    file = golden_file(tmp_path)
    found = refreshed(file, run_folder(tmp_path, "new", MOVED, launches=[MOVED]))
    assert found.refused == ()


def test_one_refused_metric_refuses_the_file(tmp_path: Path) -> None:
    file = golden_file(tmp_path)
    before = file.read_bytes()
    first, second = repeats(tmp_path, MOVED)
    other = run_folder(tmp_path, "other", {**MOVED, "grad_norm": shifted(NORMS, 1e-6)})
    found = refreshed(file, first, second, other)
    assert len(found.refused) == 1
    assert "grad_norm: repeats 1 and 3 differ, first at step 3" in found.refused[0]
    assert file.read_bytes() == before


@pytest.mark.parametrize("value", ["inf", "nan"])
def test_a_value_that_is_not_finite_is_refused_in_any_repeat(tmp_path: Path, value: str) -> None:
    file = golden_file(tmp_path)
    broken = {**MOVED, "loss": (*LOSSES[:4], value)}
    found = refreshed(file, *repeats(tmp_path, MOVED), run_folder(tmp_path, "b", broken))
    assert f"loss: it is {value} at step 5" in found.refused[0]


def test_unchanged_values_leave_the_file_as_it_is(tmp_path: Path) -> None:
    file = golden_file(tmp_path)
    before = file.read_bytes()
    found = refreshed(file, *repeats(tmp_path, None))
    assert found.first_line == f"Golden: nothing moved, {file} stays as it is."
    assert file.read_bytes() == before


@pytest.mark.parametrize("form", ["canary", "megatron", "torchtitan", "nemo", "trl"])
def test_a_worse_loss_needs_acceptance_in_every_schema(tmp_path: Path, form: str) -> None:
    file = golden_file(tmp_path, form)
    before = file.read_bytes()
    runs = repeats(tmp_path, WORSE)
    found = refreshed(file, *runs)
    assert found.exit_code == 1
    assert "got worse beyond its limit (mean of " in found.refused[0]
    assert ": 50% worse, limit " in found.refused[0]
    assert file.read_bytes() == before
    accepted = refreshed(file, *runs, accept="the new data is harder")
    assert accepted.exit_code == 0
    (tag,) = accepted.worse
    assert accepted.first_line.endswith(f" moved; {tag} got worse, accepted.")
    assert f"accepted: {tag}, because: the new data is harder" in refresh_text(accepted, "text")
    assert ", because: the new data is harder\n" in refresh_text(accepted, "markdown")
    assert json.loads(refresh_text(accepted, "json"))["accepted_metrics"] == [tag]
    assert file.read_bytes() != before
    if form == "canary":
        assert read_golden(file).history[-1].accepted == "the new data is harder"


def test_a_lower_loss_is_no_regression_and_keeps_no_acceptance(tmp_path: Path) -> None:
    file = golden_file(tmp_path)
    better = {"loss": tuple(value / 2 for value in LOSSES), "grad_norm": NORMS}
    found = refreshed(file, *repeats(tmp_path, better), accept="for sure")
    assert found.refused == ()
    assert read_golden(file).history[-1].accepted is None
    assert "accepted" not in found.first_line
    assert "othing had to be accepted" in refresh_text(found, "text")


@pytest.mark.parametrize(
    ("name", "factor_of_bad"), [("reward", 0.1), ("step_time_s", 1.5), ("max_memory_bytes", 1.5)]
)
def test_each_metric_has_its_worse_direction(
    tmp_path: Path, name: str, factor_of_bad: float
) -> None:
    values = {name: (1.0, 1.1, 1.2, 1.1, 1.0)}
    file = tmp_path / "golden.json"
    write(run_folder(tmp_path, "old", values), file, "canary", [name], {})
    bad = {name: tuple(factor_of_bad * value for value in values[name])}
    good = {name: tuple(value / factor_of_bad for value in values[name])}
    worse = refreshed(file, *repeats(tmp_path / "bad", bad))
    assert "got worse beyond its limit" in worse.refused[0]
    assert refreshed(file, *repeats(tmp_path / "good", good)).refused == ()


def test_a_limit_of_the_command_line_is_narrower(tmp_path: Path) -> None:
    file = golden_file(tmp_path)
    a_little = {"loss": tuple(1.03 * value for value in LOSSES), "grad_norm": NORMS}
    runs = repeats(tmp_path, a_little)
    assert "limit 2%" in refreshed(file, *runs, limits={"loss": Tolerance("percent", 2)}).refused[0]
    assert refreshed(file, *runs).refused == ()


def test_one_change_has_one_size_whatever_the_limit(tmp_path: Path) -> None:
    """The last tenth is 3.84% worse, the mean of all steps less: the larger one is told."""
    file = golden_file(tmp_path)
    runs = repeats(tmp_path, {"loss": (*LOSSES[:4], 1.08 * LOSSES[4]), "grad_norm": NORMS})
    narrow = refreshed(file, *runs, limits={"loss": Tolerance("percent", 0.5)})
    wide = refreshed(file, *runs)
    words = "mean of the last tenth of the steps 0.7812 -> 0.8113: 3.84% worse, limit"
    assert f"({words} 0.5%)" in narrow.refused[0]
    assert f"within its limit ({words} 10%)" in refresh_text(wide, "text")


def test_a_limit_of_nothing_lets_a_lower_loss_pass_and_no_higher_one(tmp_path: Path) -> None:
    file = golden_file(tmp_path)
    limits = {"loss": Tolerance("percent", 0)}
    worse = refreshed(file, *repeats(tmp_path / "worse", WORSE), limits=limits)
    assert "limit 0%" in worse.refused[0]
    better = refreshed(file, *repeats(tmp_path / "better", MOVED), limits=limits)
    assert better.refused == ()
    assert "within its limit" in refresh_text(better, "text")


def test_the_page_names_the_runs_with_uncommitted_changes(tmp_path: Path) -> None:
    file = golden_file(tmp_path)
    dirty = run_folder(tmp_path, "new-0", MOVED, dirty=True)
    clean = run_folder(tmp_path, "new-1", MOVED)
    page = refresh_text(refreshed(file, dirty, clean), "markdown")
    assert "Runs: new-0, new-1\n" in page
    assert "With uncommitted changes: new-0\n" in page
    assert "but the run had uncommitted changes" in page
    assert read_golden(file).history[-1].dirty is True
    runs = repeats(tmp_path / "both", None, dirty=True)
    page = refresh_text(refreshed(file, *runs), "markdown")
    assert "Runs, all with uncommitted changes: new-0, new-1\n" in page


def test_a_refresh_cannot_loosen_the_tolerance_of_its_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not change the tolerances"):
        refreshed(
            golden_file(tmp_path),
            *repeats(tmp_path, MOVED),
            tolerances={"loss": Tolerance("percent", 50)},
        )


@pytest.mark.parametrize("reason", ["", "  \n"])
def test_a_reason_is_needed(tmp_path: Path, reason: str) -> None:
    with pytest.raises(UsageError, match="--reason is empty"):
        refreshed(golden_file(tmp_path), *repeats(tmp_path, MOVED), reason=reason)
    with pytest.raises(UsageError, match="--accept needs a reason"):
        refreshed(tmp_path / "golden.json", tmp_path / "new-0", accept=reason)


def test_a_run_is_no_repeat_of_itself(tmp_path: Path) -> None:
    one = run_folder(tmp_path, "new", MOVED)
    with pytest.raises(InputError, match="named twice"):
        refreshed(golden_file(tmp_path), one, one)


@pytest.mark.parametrize(
    ("path", "to", "why"),
    [
        (("git", "sha"), "c" * 40, "their commits are aaaaaaaaa and ccccccccc"),
        (("config", "learning_rate"), 0.5, "they differ in learning_rate"),
        (("env", "packages", "torch"), "9.9", "they differ in torch"),
    ],
)
def test_runs_of_different_things_are_no_repeats(
    tmp_path: Path, path: tuple[str, ...], to: Any, why: str
) -> None:
    changed = altered(example(), *path, to=to) if path[0] != "git" else example()
    sha = to if path[0] == "git" else "a" * 40
    first = run_folder(tmp_path, "new-0", MOVED)
    other = run_folder(tmp_path, "new-1", MOVED, of=changed, sha=sha)
    with pytest.raises(InputError, match=why):
        refreshed(golden_file(tmp_path), first, other)


def newer() -> RunRecord:
    """The example with another torch and learning rate."""
    changed = altered(example(), "env", "packages", "torch", to="9.9.0")
    return altered(changed, "config", "learning_rate", to=0.5)


def test_the_page_says_what_changed_since_the_golden_values(tmp_path: Path) -> None:
    file = golden_file(tmp_path)
    found = refreshed(file, *repeats(tmp_path, MOVED, of=newer(), sha="b" * 40))
    page = refresh_text(found, "markdown")
    assert "torch" in page
    assert "-> 9.9.0" in page
    assert "learning\\_rate" in page
    assert "since commit aaaaaaaaa, now commit bbbbbbbbb" in page.replace("`", "")
    assert "Reason: a new kernel" in page
    entry = read_golden(file).history[-1]
    assert entry.packages["torch"].endswith("-> 9.9.0")


def test_another_schema_names_the_cause_with_a_baseline(tmp_path: Path) -> None:
    file = golden_file(tmp_path, "nemo")
    runs = repeats(tmp_path, MOVED, of=newer())
    without = refreshed(file, runs[0])
    assert any("--baseline" in sentence for sentence in without.cause.sentences())
    found = refreshed(file, *runs, baseline=tmp_path / "old")
    assert any("9.9.0" in sentence for sentence in found.cause.sentences())


@pytest.mark.parametrize("payload", PAYLOADS)
def test_texts_of_strangers_stay_texts_in_the_page(tmp_path: Path, payload: str) -> None:
    config = {**example().config, "learning_rate": payload}
    of = example().model_copy(update={"config": config})
    found = refreshed(
        golden_file(tmp_path), *repeats(tmp_path, MOVED, of=of), reason=payload, accept=payload
    )
    page = refresh_text(found, "markdown")
    for mark in ("<img", "</details>", "<!-- rlhf", "https://", "@everyone", "\n::"):
        assert mark not in page
    assert len(page.splitlines()) < 40


def test_a_megatron_file_keeps_its_sampling(tmp_path: Path) -> None:
    file = tmp_path / "golden.json"
    values = {"1": 2.5, "2": 1.25, "4": 0.8125}
    sampled = {"start_step": 1, "end_step": 4, "step_interval": 2, "values": values}
    file.write_text(json.dumps({"lm loss": sampled}))
    moved = {"loss": (2.5, 1.0, 9.0, 0.75)}
    assert refreshed(file, *repeats(tmp_path, moved)).refused == ()
    new = json.loads(file.read_text())["lm loss"]
    assert new == {**sampled, "values": {"1": 2.5, "2": 1.0, "4": 0.75}}


def noisy(count: int, sd: float, tolerance: str = "0.01", seed: int = 1) -> Any:
    """Repeats of a metric whose values scatter by `sd`."""
    draw = random.Random(seed)
    series = [
        Series((1, 2, 3), tuple(1.0 + draw.gauss(0, sd) for _ in range(3))) for _ in range(count)
    ]
    golden = GoldenMetric(series[0], parse_tolerance(tolerance))
    return agreement(golden, series)


def test_the_number_of_repeats_follows_from_the_spread() -> None:
    assert noisy(2, 1e-6).problem == ""
    few, many = noisy(3, 2e-3), noisy(30, 2e-3)
    assert few.needed is not None
    assert few.needed > 3
    assert f"train {few.needed - 3} more times" in few.problem
    assert many.problem == ""
    assert many.series.values[0] == pytest.approx(1.0, abs=2e-3)


def test_a_tolerance_narrower_than_the_noise_has_no_number_of_repeats() -> None:
    found = noisy(20, 2e-2)
    assert found.needed is None
    assert "spread too far for the tolerance 0.01" in found.problem


def test_needed_repeats_rise_with_the_spread_and_end() -> None:
    counts = [needed_repeats(ratio) for ratio in (0.0, 0.01, 0.1, 0.2, 0.3, 0.5)]
    assert counts[0] == counts[1] == 2
    assert counts[-1] is None
    known = [count for count in counts if count is not None]
    assert known == sorted(known)
    # t(4; 0.995) = 4.604, times the root of 1 + 1/5.
    assert factor(5) == pytest.approx(4.6041 * 1.0954, rel=1e-4)


def test_a_healthy_run_stays_within_values_that_were_refreshed() -> None:
    """At most 1 of 100 next runs leaves the tolerance, over 400 simulated refreshes."""
    draw = random.Random(7)
    false = total = 0
    for seed in range(400):
        sd = 10 ** draw.uniform(-4, -2.3)
        found = next(
            (one for n in range(2, 21) if not (one := noisy(n, sd, seed=1000 * seed + n)).problem),
            None,
        )
        if found is None:
            continue
        total += 1
        false += any(abs(1.0 + draw.gauss(0, sd) - golden) > 0.01 for golden in found.series.values)
    assert total > 200
    assert false / total <= 0.02


def test_small_steps_for_the_worse_add_up(tmp_path: Path) -> None:
    """Each is within the limit of 10%; the second is 13% above the first values."""
    file = golden_file(tmp_path)
    steps = [
        repeats(
            tmp_path / str(factor_),
            {"loss": tuple(factor_ * value for value in LOSSES), "grad_norm": NORMS},
        )
        for factor_ in (1.06, 1.13)
    ]
    assert refreshed(file, *steps[0]).refused == ()
    found = refreshed(file, *steps[1])
    assert "mean of all steps since 20" in found.refused[0]
    assert refreshed(file, *steps[1], accept="agreed").refused == ()
    again = {"loss": tuple(1.2 * value for value in LOSSES), "grad_norm": NORMS}
    assert refreshed(file, *repeats(tmp_path / "again", again)).refused == ()


def test_a_misspelt_limit_is_an_error_and_not_ignored(tmp_path: Path) -> None:
    file, runs = golden_file(tmp_path), repeats(tmp_path, WORSE)
    with pytest.raises(UsageError, match="did you mean 'loss'"):
        refreshed(file, *runs, limits={"los": Tolerance("percent", 2)})
