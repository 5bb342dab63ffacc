"""Which launches a training gets, and in which folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from canary.check.copied import COPY
from canary.check.launches import Launches
from canary.check.varied import affordable, ask_launches, variations_of
from canary.config.load import load_values
from canary.errors import RunFailed
from canary.protocol.job import TORCH_LOOP, Result
from canary.record.exact import Exact
from canary.record.types import RunRecord
from canary.relations import RELATIONS
from canary.relations.relation import Variation
from canary.relations.resume import NO_CHECKPOINT
from canary.relations.workers import NO_LOADER
from canary.runner.display.progress import Quiet

NONE = "this relation needs a transformers Trainer"
TRAINER = Result("completed")
LOOP = Result("completed", training={"trainer": TORCH_LOOP}, not_varied=NONE)
RECORDER = Result("completed", training={"trainer": "mine"}, not_varied=NONE)


def test_a_plain_loop_has_launches_of_its_own_or_a_reason() -> None:
    for relation in RELATIONS.values():
        assert variations_of(relation, TRAINER, {}) == relation.variations
        of_loop = variations_of(relation, LOOP, {})
        assert of_loop == (relation.of_loop or relation.no_loop or ())
        assert isinstance(variations_of(relation, RECORDER, {}), str) == bool(relation.variations)
    killed, again = RELATIONS["resume"].of_loop
    assert killed["killed"]
    assert again["restarted"]
    assert "optimizer" in str(variations_of(RELATIONS["fused_optimizer"], LOOP, {}))


def test_what_the_first_launch_did_not_do_needs_no_launch() -> None:
    bare: Exact = {"varied": {"saves": False, "loads": False}}
    assert variations_of(RELATIONS["resume"], LOOP, bare) == NO_CHECKPOINT
    for name in ("workers", "padding"):
        assert variations_of(RELATIONS[name], LOOP, bare) == NO_LOADER
    assert variations_of(RELATIONS["resume"], TRAINER, bare) == RELATIONS["resume"].variations
    full: Exact = {"varied": {"saves": True, "loads": True}}
    for name in ("resume", "workers", "padding"):
        assert variations_of(RELATIONS[name], LOOP, full) == RELATIONS[name].of_loop


def test_few_launches_go_to_the_relations_that_need_the_fewest() -> None:
    needed = {name: len(one.variations) for name, one in RELATIONS.items()}
    inside = {name for name, count in needed.items() if not count}
    assert affordable(needed, 0) == inside
    assert affordable(needed, 1) == inside | {"evaluation"}
    for launches in (1, 2, 3):
        assert sum(needed[name] for name in affordable(needed, launches)) <= launches
    assert affordable({"resume": 2, "workers": 2}, 2) == {"resume"}


class Fake(Launches):
    """Launches that record a loss and where they ran."""

    ran: list[tuple[Variation, Path | None]]
    files: list[list[str]]
    exacts: list[Exact]
    why: str | None = None

    def run(self, *_: Any, variation: Any = None, copied: Path | None = None, **more: Any) -> Any:
        self.ran.append((variation, copied))
        there = [] if copied is None else [one.name for one in copied.rglob("*") if one.is_file()]
        self.files.append(sorted(there))
        if copied is not None:
            (copied / f"left{len(self.ran)}.pt").touch()
        result = replace(TRAINER, not_varied=self.why)
        exact = self.exacts.pop(0)
        if "saved" in exact.get("varied", {}):
            saved = [path.format(copy=copied) for path in exact["varied"]["saved"]]
            exact = {**exact, "varied": {**exact["varied"], "saved": saved}}
        return _record(exact), Path("run"), result


def _record(exact: Exact, env: dict[str, Any] | None = None) -> Any:
    """A record with these signals."""
    made: Any = RunRecord.model_construct
    return made(env=env or {}, exact=exact)


def fake(folder: Path, exacts: list[Exact]) -> Fake:
    """Launches that leave these signals."""
    given = {"training_type": ("exec", "test"), "command": (["python", "train.py"], "test")}
    made = Fake(load_values(None, given, []), Quiet(), folder, lambda _: None)
    made.ran, made.files, made.exacts = [], [], exacts
    return made


def test_each_further_launch_is_told_with_its_relation_and_what_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = _record(told(1)).model_copy(update={"status": "completed"})
    ended = (record, tmp_path, TRAINER)
    monkeypatch.setattr("canary.check.launches.run_canary", lambda *_, **__: ended)
    said: list[str] = []
    launches = Launches(load_values(None, {}, []), Quiet(), tmp_path, said.append)
    for name in ("padding", "evaluation"):
        one = RELATIONS[name]
        ask_launches(one, one.variations, launches, launches.run())
    assert said == [
        "launch 2, for padding: more padding",
        "launch 3, for padding: no dropout",
        "launch 4, for padding: no dropout, off by one rounding",
        "launch 6, for evaluation: with evaluations",
    ]


def told(first: int, **more: Any) -> Exact:
    """The signals of a launch from step `first` to 6."""
    trajectory: Any = {"losses": [9.0 - step for step in range(first, 7)]}
    found: Any = {"trajectory": trajectory, "batches": [], **more}
    return found


def ask(launches: Fake, relation: str) -> Any:
    """Ask a relation of a plain loop."""
    one = RELATIONS[relation]
    base = (_record(told(1)), Path("run"), LOOP)
    with launches.kept_folder():
        return ask_launches(one, one.of_loop, launches, base)


def test_a_loop_is_killed_and_started_again_in_one_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    saved = {"saved_at": 2, "saved": ["{copy}/last.pt"]}
    launches = fake(tmp_path / "runs" / "check", [told(1, varied=saved), told(3)])
    found = ask(launches, "resume")
    assert found["message"] == "losses and gradient norms of updates 3 to 6 are equal", found
    assert launches.files == [["train.py"], ["left1.pt", "train.py"]]
    assert not list((tmp_path / "runs" / "check").iterdir()), "the copies are removed"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["runs", "train.py"]


def test_the_copy_takes_the_place_of_no_file_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / COPY).mkdir(0o755)
    (tmp_path / COPY / "precious").touch()
    for relation in ("resume", "workers"):
        launches = fake(tmp_path, [told(1), told(3), told(1)])
        ask(launches, relation)
        assert [one.name for one in (tmp_path / COPY).iterdir()] == ["precious"]
        assert [one.name for one in tmp_path.iterdir()] == [COPY], "the copies are removed"


def test_others_cannot_read_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here" / "private").mkdir(0o700, parents=True)
    monkeypatch.chdir(tmp_path / "here")
    modes = []
    monkeypatch.setattr(Fake, "run", lambda *_, copied, **__: modes.append(copied.stat().st_mode))
    with pytest.raises(TypeError):
        ask(fake(tmp_path / "runs", []), "resume")
    assert [oct(one & 0o777) for one in modes] == ["0o700"]


def test_a_checkpoint_outside_of_the_working_folder_ends_the_launches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saved = {"saved_at": 2, "saved": ["/elsewhere/last.pt"]}
    launches = fake(tmp_path / "runs", [told(1, varied=saved)])
    found = ask(launches, "resume")
    assert found["status"] == "not applicable"
    assert found["message"] == "the checkpoint is outside the working folder"
    assert len(launches.ran) == 1


def test_a_launch_that_fails_is_undecided_and_leaves_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def fails(*_: Any, **__: Any) -> Any:
        raise RunFailed("no such file: ../data.json", "failed")

    monkeypatch.setattr(Fake, "run", fails)
    found = ask(fake(tmp_path / "runs", []), "resume")
    assert found["status"] == "undecided"
    assert found["message"] == "is killed after its first checkpoint: no such file: ../data.json"
    assert not list((tmp_path / "runs").iterdir())


def test_launches_that_do_the_same_run_once(tmp_path: Path) -> None:
    launches = fake(tmp_path, [told(1), told(1), told(1)])
    loaded = launches.loaded
    for name in ("one rank", "no dropout"):
        launches.varied("ranks", {"name": name, "no_dropout": True}, loaded, None)
    launches.varied("ranks", {"name": "moved", "no_dropout": True, "perturbed": 1}, loaded, None)
    launches.varied("ranks", {"name": "wider", "no_dropout": True, "widened": 7}, loaded, None)
    assert len(launches.ran) == 3


@pytest.mark.parametrize(
    ("again", "status"),
    [(["a", "b"], "broken"), (["c", "d"], "undecided")],
    ids=["seeded", "without a seed"],
)
def test_a_command_without_a_seed_is_not_judged_by_its_launches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: list[str], status: str
) -> None:
    """The launch runs once more as it is, and only if something is broken."""
    monkeypatch.chdir(tmp_path)

    def rows(*names: str) -> Exact:
        made: Any = {"batches": [[{"rows": {"input_ids": [*names]}}]]}
        return told(1) | made

    launches = fake(tmp_path / "runs", [rows("a", "b"), rows("a", "a"), rows(*again)])
    relation = RELATIONS["workers"]
    base = (_record(rows("a", "b")), Path("run"), LOOP)
    assert ask_launches(relation, relation.of_loop, launches, base)["status"] == status
    assert len(launches.ran) == 3
    assert launches.ran[-1] == ({}, None)
    launches.exacts = [rows("a", "b"), rows("a", "b")]
    held = ask_launches(relation, relation.of_loop, launches, base)
    assert held["status"] == "holds"
    assert len(launches.ran) == 5


def test_each_further_launch_starts_from_the_folder_as_it_was_before_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    launches = fake(tmp_path / "runs", [told(1) for _ in range(9)])
    with launches.kept_folder():
        (tmp_path / "left_by_the_first_launch.pt").touch()
        base = (_record(told(1)), Path("run"), LOOP)
        for name in ("workers", "padding"):
            ask_launches(RELATIONS[name], RELATIONS[name].of_loop, launches, base)
    assert launches.files
    assert all(files == ["train.py"] for files in launches.files), launches.files
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "left_by_the_first_launch.pt",
        "runs",
        "train.py",
    ]
