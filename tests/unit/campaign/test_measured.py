"""The noise model of an A/B is found where calibrate left it; ab refuses what it would override."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from canary.baseline.branch import BRANCH, Remote, pull, push
from canary.baseline.comparability import machine_key
from canary.baseline.history import NOISE_FILE, drawer, select
from canary.baseline.origin import Surroundings
from canary.campaign.ab import AbRequest, run_ab, with_setup_hint
from canary.campaign.calibrate import noise_branch, push_noise, require_writable
from canary.campaign.judging import Measured
from canary.campaign.pairs import Runs
from canary.compare.report import Comparison
from canary.compare.timing.noise import NoiseModel, save_noise
from canary.errors import ConfigError, MachineError, UsageError
from tests.contract.git_server import bare_repository
from tests.unit.branching import adding, run_ids, stored
from tests.unit.comparing import crashed, noise_model, record

RUN = record()


def model_of(sd: float) -> NoiseModel:
    return noise_model(sd).model_copy(update={"machine_key": machine_key(RUN)})


class Said(list[str]):
    def __call__(self, words: str) -> None:
        self.append(words)


def test_the_file_that_calibrate_writes_is_found_in_the_working_directory(tmp_path: Path) -> None:
    save_noise(model_of(0.03), tmp_path / "noise-sft_smoke.json")
    said = Said()
    found = Measured(said, folder=tmp_path).of(RUN)
    assert found == model_of(0.03)
    assert said == ["noise model of 31 runs, measured 2026-01-01"]


def test_the_newest_of_file_and_histories_is_taken(tmp_path: Path) -> None:
    later = model_of(0.05).model_copy(update={"created": "2026-02-02T00:00:00+00:00"})
    save_noise(model_of(0.03), tmp_path / "noise-sft_smoke.json")
    save_noise(later, drawer(tmp_path / "baselines", RUN) / NOISE_FILE)
    assert Measured(Said(), folder=tmp_path).of(RUN) == later


@pytest.mark.parametrize("key", ["canary", "machine_key"])
def test_the_noise_of_something_else_is_not_taken_and_said(tmp_path: Path, key: str) -> None:
    other = model_of(0.03).model_copy(update={key: "another"})
    save_noise(other, tmp_path / "noise-sft_smoke.json")
    said = Said()
    assert Measured(said, folder=tmp_path).of(RUN) is None
    assert "noise-sft_smoke.json is not used: the noise model is for" in said[0]


def test_nothing_is_looked_for_where_nobody_asked(tmp_path: Path) -> None:
    """The action trains pull requests: their files must not widen their own gate."""
    save_noise(model_of(0.9), tmp_path / "noise-sft_smoke.json")
    assert Measured(Said()).of(RUN) is None
    assert AbRequest(config=None).trusts_folder is False


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    return Remote(str(bare_repository(tmp_path / "theirs.git")))


def here(**environ: str) -> Surroundings:
    return Surroundings({**os.environ, **environ}, Path.cwd(), datetime(2026, 2, 1, tzinfo=UTC))


def test_the_branch_gets_the_model_beside_its_runs(remote: Remote, tmp_path: Path) -> None:
    push(remote, adding(1, 2), message="two runs")
    said = push_noise(remote, here(), model_of(0.03), RUN)
    assert said.startswith("the noise of 31 runs of sft_smoke added to branch canary-baselines of")
    assert stored(remote, tmp_path / "pulled") == run_ids(1, 2)
    assert select(tmp_path / "pulled", record(9)).noise_file is not None, "compare finds it too"


def test_the_branch_may_begin_with_a_model(remote: Remote, tmp_path: Path) -> None:
    push_noise(remote, here(), model_of(0.03), RUN)
    assert pull(remote, tmp_path / "pulled") is not None
    assert select(tmp_path / "pulled", RUN).records == ()


def test_who_may_not_write_the_branch_is_told_before_the_runs(remote: Remote) -> None:
    pull_request = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_REF": "refs/pull/1/merge"}
    with pytest.raises(UsageError):
        require_writable(remote, here(GITHUB_ACTIONS="true", **pull_request))
    with pytest.raises(MachineError):
        require_writable(Remote(str(Path(remote.url) / "nowhere")), here())


def test_the_branch_is_asked_for_by_remote_or_branch_alone(tmp_path: Path) -> None:
    assert noise_branch(None, BRANCH) is None
    place = noise_branch(str(tmp_path), "other")
    assert place is not None
    assert (place[0].url, place[0].branch) == (str(tmp_path), "other")


def refused(**changes: object) -> UsageError:
    with pytest.raises(UsageError) as caught:
        AbRequest(config=None, **changes).plan()  # type: ignore[arg-type]
    return caught.value


def test_repeats_are_refused_in_ab_and_exact_is_named() -> None:
    error = refused(settings=("max_steps=10", "repeats=2"))
    assert error.message == "--set repeats=2 has no effect in ab"
    assert "--exact" in str(error.hint)
    assert refused(settings=(" repeats = 3",)).message == "--set repeats=3 has no effect in ab"


def test_pairs_and_budget_are_numbers_above_zero() -> None:
    assert "whole number above 0, got 'few'" in refused(pairs="few").message
    assert "--budget must be more than 0 minutes" in refused(budget_minutes=0).message


def test_exact_runs_one_look_per_side_and_takes_no_pairs() -> None:
    assert AbRequest(config=None, exact=True).plan().pairs == 1
    assert "leave --pairs out" in str(refused(exact=True, pairs="3").hint)


def test_an_imported_run_has_no_look_for_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one.yaml", "other.yaml"):
        text = "name: a\ncommand: [python3, train.py]\nimport: {source: outputs}\n"
        (tmp_path / name).write_text(text, encoding="utf-8")
    request = AbRequest(Path("one.yaml"), head_config=Path("other.yaml"))
    with pytest.raises(UsageError, match="--exact does not work with `import` in base"):
        run_ab(replace(request, exact=True), Said())


def test_a_config_that_cannot_be_used_is_named_with_its_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.yaml").write_text("name: a\ntraining_type: sft\nprobe_steps: 12\n")
    (tmp_path / "new.yaml").write_text("name: a\ntraining_type: sft\n")
    request = AbRequest(Path("old.yaml"), head_config=Path("new.yaml"))
    with pytest.raises(ConfigError, match=r"base \(old.yaml\): unknown key 'probe_steps'") as found:
        run_ab(request, Said())
    assert "write `look_steps` instead; or" in str(found.value.hint)
    assert "canary ab BASE.yaml HEAD.yaml" in str(found.value.hint)


@pytest.mark.parametrize(
    ("config", "hint"),
    [("../canary.yaml", "run it in that of the config: cd .."), ("canary.yaml", "--setup 'ln -s ")],
)
def test_a_file_that_is_missing_may_lie_in_the_folder_of_the_config(config: str, hint: str) -> None:
    runs = Runs(failed=[crashed(RUN).model_copy(update={"failure": "not found"})])
    found = with_setup_hint(Comparison("error", ""), AbRequest(Path(config), "main"), runs)
    assert hint in found.notes[0]
