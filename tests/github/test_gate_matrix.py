"""A matrix in the reporting job: each cell's artifact is judged, and one comment tells of all."""

from __future__ import annotations

import io
import json
import re
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from canary.baseline.branch import Remote, push
from canary.baseline.history import Context, save
from canary.errors import ConfigError
from canary.gate import gathering, run_job
from canary.gate.asked import OF_THE_REPORT, cells_at
from canary.gate.cells_job import list_cells
from canary.gate.inputs import TrainSettings
from canary.gate.manifest import Manifest, Part
from canary.gate.records import Room
from canary.github.comment import MARKER, parse
from canary.record import jsonio
from canary.record.types import RunRecord
from tests.github.gatehouse import (
    BASE_CONFIG,
    CONFIG,
    NOW,
    Gatehouse,
    Said,
    git,
    pull_event,
    push_event,
    workflow_run_event,
)
from tests.github.server import GitHub
from tests.github.state import Pull

FILE = "matrix.yaml"
CELLS = ("fine", "slow", "third")
SLOW = 0.2


def matrix(*cells: str) -> str:
    return yaml.safe_dump({"cells": [{"name": cell, "config": CONFIG} for cell in cells]})


@pytest.fixture
def house(tmp_path: Path, github: GitHub) -> Gatehouse:
    made = Gatehouse(tmp_path, github)
    made.commit(files={FILE: matrix(*CELLS)})
    entries = [(made.commit(), made.run(), cell) for cell in CELLS for _ in range(5)]

    def add(folder: Path) -> None:
        for sha, run, cell in entries:
            context = Context(commit=sha, ref="refs/heads/main", verdict="pass", stored=NOW)
            save(folder, run.model_copy(update={"name": cell}), context=context)

    push(Remote(f"file://{made.bare}", "canary-baselines"), add, message="runs")
    return made


def zipped(files: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in files.items():
            packed.writestr(name, text)
    return buffer.getvalue()


def leg(*trained: tuple[str, RunRecord | str], error: str = "", **more: str) -> bytes:
    """An artifact: each cell with its run, or with the reason why it has none."""
    parts, files = [], dict(more)
    for number, (cell, run) in enumerate(trained):
        folder = f"{number:02d}-{cell}"
        said = run if isinstance(run, str) else ""
        parts.append(Part(config=CONFIG, cell=cell, folder=folder, error=said))
        if isinstance(run, RunRecord):
            place = f"{folder}/current/{run.run_id}/metrics.json"
            files[place] = jsonio.dumps(run.model_dump() | {"name": cell})
    files["gate.json"] = Manifest(error=error, parts=parts).model_dump_json()
    return zipped(files)


def legs(house: Gatehouse, sha: str, artifacts: Mapping[str, bytes]) -> None:
    """Put artifacts at the workflow run of the next report."""
    run = house.hub_repository.add_run(sha, id=house.runs + 1)
    for name, content in artifacts.items():
        house.hub_repository.add_artifact(run, name, content)


def judged(house: Gatehouse, pull: Pull, artifacts: Mapping[str, bytes]) -> tuple[Said, str]:
    """The answer on a pull request, and its comment."""
    legs(house, pull.head_sha, artifacts)
    said = house.report("pull_request", pull_event(pull, "opened", None), None, matrix=FILE)
    comments = house.comments(pull)
    return said, comments[0].body if comments else ""


def named(**runs: bytes) -> dict[str, bytes]:
    return {f"canary-records-{cell}": content for cell, content in runs.items()}


def good(house: Gatehouse, *cells: str) -> dict[str, bytes]:
    return named(**{cell: leg((cell, house.run())) for cell in cells})


def rows(body: str) -> dict[str, str]:
    """Cell -> the rest of its row, in order."""
    lines = [line for line in body.splitlines() if line.startswith("| `")]
    return {line.split("`")[1]: line.split("|", 2)[2].strip() for line in lines}


def test_one_comment_has_a_row_per_cell_the_worst_first(house: Gatehouse) -> None:
    pull = house.pull()
    artifacts = good(house, "fine") | named(slow=leg(("slow", house.run(SLOW))))
    said, body = judged(house, pull, artifacts)
    lines = body.splitlines()
    assert lines[:2] == [MARKER, "**💥 3 cells: 1 error, 1 regression, 1 pass**"]
    assert [*rows(body)] == ["third", "slow", "fine"]
    assert "the training job of cell third left no record" in rows(body)["third"]
    assert rows(body)["slow"].startswith("❌&nbsp;regression | median step time +100.0%")
    assert rows(body)["fine"].startswith("✅&nbsp;pass | ")
    shown, folded = body.split("<details><summary>1 pass</summary>")
    assert "#### `third`" in shown
    assert "#### `slow`" in shown
    assert "#### `fine`" in folded
    assert said.code == 4
    assert said.outputs["verdict"] == "error"
    assert house.status(pull.head_sha)[1].startswith("third: Error: the training job of cell third")
    assert {one.key for one in parse(body)} == {one.key for one in parse(said.summary)}
    reports = {path.parent.name for path in Path(said.outputs["report-path"]).rglob("*.json")}
    assert reports == {*CELLS}


def trained(
    house: Gatehouse, cell: str, time: float, monkeypatch: pytest.MonkeyPatch
) -> dict[str, bytes]:
    """The artifact of a job that trained one cell, as the training job leaves it."""
    place = house.root / f"leg-{cell}"
    (place / "scratch").mkdir(parents=True)
    environ = {
        "CANARY_MATRIX": FILE,
        "CANARY_CELL": cell,
        "CANARY_GPUS": "none",
        "CANARY_BASE_SHA": git(house.work, "rev-parse", "main"),
        "CANARY_CHECKOUT": str(house.work),
        "CANARY_RECORDS": str(place / "records"),
        "CANARY_SCRATCH": str(place / "scratch"),
    }

    def alone(settings: Any, at: Any, canary: Any, overrides: Any, folder: str, say: Any) -> None:
        run = house.run(time)
        into = settings.records / folder / "current" / run.run_id
        into.mkdir(parents=True)
        (into / "metrics.json").write_text(jsonio.dumps(run.model_dump() | {"name": cell}))

    monkeypatch.setattr(run_job, "_run_alone", alone)
    assert run_job.train(TrainSettings.read(environ), environ, lambda line: None) == 0
    left = [path for path in (place / "records").rglob("*") if path.is_file()]
    files = {str(path.relative_to(place / "records")): path.read_text() for path in left}
    return {f"canary-records-{cell}": zipped(files)}


def test_what_the_training_jobs_leave_is_what_the_report_reads(
    house: Gatehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One cell is good, one is worse, and the job of the third never ran."""
    artifacts = trained(house, "fine", 0.1, monkeypatch)
    artifacts |= trained(house, "slow", SLOW, monkeypatch)
    said, body = judged(house, house.pull(), artifacts)
    assert said.code == 4
    assert results(body) == {"third": "error", "slow": "regression", "fine": "pass"}


def test_all_good_cells_are_a_success(house: Gatehouse) -> None:
    pull = house.pull()
    said, body = judged(house, pull, good(house, *CELLS))
    assert said.code == 0, said.log
    assert body.splitlines()[1] == "**✅ 3 cells: 3 pass**"
    assert house.status(pull.head_sha)[0] == "success"
    assert len(house.entries()) == 15


def test_a_push_adds_each_cell_to_its_own_history(house: Gatehouse) -> None:
    sha = house.commit()
    legs(house, sha, good(house, *CELLS))
    said = house.report("push", push_event(sha), None, matrix=FILE)
    assert said.code == 0, said.log
    names = git(house.bare, "ls-tree", "-r", "--name-only", "canary-baselines").splitlines()
    drawers = [name.split("/")[1] for name in names if name.endswith(".json")]
    assert {cell: drawers.count(cell) for cell in drawers} == dict.fromkeys(CELLS, 6)


def test_one_job_may_run_all_cells(house: Gatehouse) -> None:
    pull = house.pull()
    every = leg(*((cell, house.run()) for cell in CELLS))
    said, _ = judged(house, pull, {"canary-records": every})
    assert said.code == 0, said.log


def test_a_cell_that_the_pull_request_takes_away_is_still_asked_for(house: Gatehouse) -> None:
    sha = house.commit("faster", {FILE: matrix("fine", "slow")})
    pull = house.hub_repository.add_pull(sha, base_sha=git(house.work, "rev-parse", "main"))
    said, body = judged(house, pull, good(house, "fine", "slow"))
    assert said.code == 4
    assert "cell third left no record" in rows(body)["third"]


def test_cells_that_only_the_pull_request_has_count_once_merged(house: Gatehouse) -> None:
    sha = house.commit("faster", {FILE: matrix(*CELLS, "mine")})
    pull = house.hub_repository.add_pull(sha, base_sha=git(house.work, "rev-parse", "main"))
    mine = named(mine=leg(("mine", house.run(SLOW))))
    said, body = judged(house, pull, good(house, *CELLS) | mine)
    assert said.code == 0, said.log
    said_of_mine = "mine is new here, and trained after the merge."
    assert rows(body)["matrix"] == f"🆕&nbsp;no-baseline | No baseline yet: {said_of_mine} |"
    assert "mine" not in rows(body)


def test_a_pull_request_cannot_stall_the_jobs_with_a_wide_matrix(house: Gatehouse) -> None:
    ten = [*range(10)]
    wide: dict[str, Any] = {"config": [CONFIG], **{f"a{number}": ten for number in range(4)}}
    wide |= {"include": [{}] * 4900}
    sha = house.commit("faster", {FILE: yaml.safe_dump({"matrix": wide})})
    pull = house.hub_repository.add_pull(sha, base_sha=git(house.work, "rev-parse", "main"))
    began = time.process_time()
    said, body = judged(house, pull, good(house, *CELLS))
    assert time.process_time() - began < 30
    assert said.code == 0, said.log
    assert [*rows(body)] == [*CELLS]


def test_limits_of_a_cell_come_from_the_base_branch(house: Gatehouse) -> None:
    loose = yaml.safe_load(matrix(*CELLS))
    for cell in loose["cells"]:
        cell["thresholds.max_step_time_increase_pct"] = 900
    sha = house.commit("faster", {FILE: yaml.safe_dump(loose)})
    pull = house.hub_repository.add_pull(sha, base_sha=git(house.work, "rev-parse", "main"))
    said, _ = judged(
        house, pull, good(house, "fine", "third") | named(slow=leg(("slow", house.run(SLOW))))
    )
    assert said.outputs["verdict"] == "regression"


def test_a_matrix_that_the_base_branch_lacks_trains_nothing(tmp_path: Path, github: GitHub) -> None:
    house = Gatehouse(tmp_path, github)
    house.commit()
    sha = house.commit("faster", {FILE: matrix(*CELLS)})
    pull = house.hub_repository.add_pull(sha, base_sha=git(house.work, "rev-parse", "main"))
    said, body = judged(house, pull, {})
    assert said.outputs["verdict"] == "no-baseline"
    assert "fine, slow, third are new here, and trained after the merge" in body
    assert "Summary" not in body, "there is no run"


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "ended early": ({"error": "the training job stopped before this config was done"}, "stopped"),
    "another cell": ({"cells": ["fine"]}, "the artifact of cell slow holds fine"),
    "two cells": ({"cells": ["slow", "fine"]}, "the artifact of cell slow holds fine"),
    "the same twice": ({"cells": ["slow", "slow"]}, "the records hold cell slow twice"),
    "all there, but ended early": ({"cells": ["slow"], "error": "killed"}, "incomplete"),
    "a path outside": ({"cells": ["slow"], "../../x": "x"}, "leads outside of it"),
    "no manifest": ({"raw": b"PK\5\6" + b"\0" * 18}, "left no record"),
    "no archive": ({"raw": b"no zip"}, "broken"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_leg_that_cannot_be_trusted_is_an_error_of_its_cell(house: Gatehouse, case: str) -> None:
    content, said_why = BROKEN[case]
    values = dict(content)
    cells: Sequence[str] = values.pop("cells", ())
    raw = values.pop("raw", None)
    made = raw if raw is not None else leg(*((one, house.run()) for one in cells), **values)
    said, body = judged(house, house.pull(), good(house, "fine", "third") | named(slow=made))
    assert said.code == 4
    assert said_why in rows(body)["slow"], body
    assert rows(body)["third"].startswith("✅&nbsp;pass")


def test_a_cell_that_another_leg_claims_too_is_an_error(house: Gatehouse) -> None:
    claimed = named(slow=leg(("slow", house.run()), ("fine", house.run())))
    _, body = judged(house, house.pull(), good(house, "fine", "third") | claimed)
    assert "the records hold cell fine twice" in rows(body)["fine"]
    assert "the artifact of cell slow holds fine" in rows(body)["slow"]


def test_a_cell_alone_and_in_the_artifact_of_all_is_an_error(house: Gatehouse) -> None:
    every = leg(*((cell, house.run()) for cell in CELLS))
    said, body = judged(house, house.pull(), good(house, "slow") | {"canary-records": every})
    assert said.code == 4
    assert "twice" in rows(body)["slow"]
    assert rows(body)["fine"].startswith("✅&nbsp;pass")


def results(body: str) -> dict[str, str]:
    """Cell -> its result."""
    return {cell: row.split("&nbsp;")[1].split(" ")[0] for cell, row in rows(body).items()}


def test_a_record_answers_only_for_the_cell_whose_name_it_carries(house: Gatehouse) -> None:
    run = house.run()
    place = f"00-slow/current/{run.run_id}/metrics.json"
    files = {place: jsonio.dumps(run.model_dump() | {"name": "fine"})}
    part = Part(config=CONFIG, cell="slow", folder="00-slow")
    files["gate.json"] = Manifest(parts=[part]).model_dump_json()
    artifacts = good(house, "fine", "third") | named(slow=zipped(files))
    said, body = judged(house, house.pull(), artifacts)
    assert said.code == 4
    assert results(body) == {"slow": "error", "fine": "pass", "third": "pass"}
    assert "is of the canary 'fine'" in rows(body)["slow"]


def test_one_run_does_not_answer_for_two_cells(house: Gatehouse) -> None:
    run = house.run()
    artifacts = named(fine=leg(("fine", run)), slow=leg(("slow", run))) | good(house, "third")
    said, body = judged(house, house.pull(), artifacts)
    assert said.code == 4
    assert results(body) == {"fine": "error", "slow": "error", "third": "pass"}
    for cell in ("fine", "slow"):
        assert f"run {run.run_id} is in the records of the cells fine, slow" in rows(body)[cell]


def test_two_cells_do_not_share_a_folder(house: Gatehouse) -> None:
    run = house.run()
    place = f"00-fine/current/{run.run_id}/metrics.json"
    files = {place: jsonio.dumps(run.model_dump() | {"name": "fine"})}
    parts = [Part(config=CONFIG, cell=cell, folder="00-fine") for cell in CELLS]
    files["gate.json"] = Manifest(parts=parts).model_dump_json()
    said, body = judged(house, house.pull(), {"canary-records": zipped(files)})
    assert said.code == 4
    assert results(body) == dict.fromkeys(CELLS, "error")
    assert "cell third shares its folder with another" in rows(body)["third"]


def test_a_cell_that_could_not_train_says_why(house: Gatehouse) -> None:
    failed = named(slow=leg(("slow", "no GPU to train on")))
    _, body = judged(house, house.pull(), good(house, "fine", "third") | failed)
    assert rows(body)["slow"].startswith("💥&nbsp;error | no GPU to train on.")


def test_the_limits_hold_for_all_artifacts_together(
    house: Gatehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = {"00-fine/log.txt": "x" * 50_000}
    artifacts = named(
        fine=leg(("fine", house.run()), **large),
        slow=leg(("slow", house.run()), **large),
        third=leg(("third", house.run()), **large),
    )
    monkeypatch.setattr(gathering, "Room", lambda: Room(unpacked=180_000))
    said, body = judged(house, house.pull(), artifacts)
    assert said.code == 4
    assert rows(body)["fine"].startswith("✅&nbsp;pass")
    assert "too large" in rows(body)["third"]


# Forks: the training is another workflow's run.


def of_a_fork(
    house: Gatehouse, artifacts: Mapping[str, bytes], conclusion: str = "success"
) -> tuple[Said, str]:
    pull = house.pull(head_repository="stranger/repo")
    run = house.hub_repository.add_run(
        pull.head_sha, id=50, head_repository="stranger/repo", conclusion=conclusion
    )
    for name, content in artifacts.items():
        house.hub_repository.add_artifact(run, name, content)
    event = workflow_run_event(pull.head_sha, 50, "stranger/repo", conclusion=conclusion)
    said = house.report("workflow_run", event, None, matrix=FILE)
    return said, house.comments(pull)[0].body


def test_a_strangers_artifact_of_a_cell_that_nobody_asks_for_is_not_read(
    house: Gatehouse,
) -> None:
    strange = named(other=b"no zip") | {"canary-records-report": b"", "else": b""}
    said, body = of_a_fork(house, good(house, *CELLS) | strange)
    assert said.code == 0, said.log
    assert [*rows(body)] == [*CELLS]


def test_a_failed_run_whose_cells_all_look_good_is_refused(house: Gatehouse) -> None:
    said, body = of_a_fork(house, good(house, *CELLS), "failure")
    assert said.code == 4
    assert "incomplete: the training job ended as failure" in body


def test_a_failed_run_is_explained_by_the_cell_that_failed(house: Gatehouse) -> None:
    said, body = of_a_fork(house, good(house, "fine", "slow"), "failure")
    assert said.code == 4
    assert rows(body)["fine"].startswith("✅&nbsp;pass")
    assert "left no record" in rows(body)["third"]


# The comment over several runs.


def test_a_later_run_replaces_an_error_that_stood_for_all_cells(house: Gatehouse) -> None:
    pull = house.pull()
    house.hub_repository.private = True
    house.github.permissions["actions"] = "none"
    _, body = judged(house, pull, good(house, *CELLS))
    assert [one.name for one in parse(body)] == ["matrix"]
    assert "`actions: read`" in body.replace("\\", "")
    house.github.permissions["actions"] = "read"
    _, body = judged(house, pull, good(house, *CELLS))
    assert [*rows(body)] == [*CELLS]


def test_many_cells_fit_and_the_table_is_cut_last(tmp_path: Path, github: GitHub) -> None:
    house = Gatehouse(tmp_path, github)
    cells = [f"a-cell-with-a-long-name-of-which-there-are-many-{n:02d}" for n in range(80)]
    house.commit(files={FILE: matrix(*cells)})
    pull = house.pull()
    run = house.run(SLOW)
    run.config["trainer_args"] = {f"argument_{n}": "value " * 9 for n in range(200)}
    once = {
        f"canary-records-{cell}": leg((cell, run.model_copy(update={"run_id": f"r{n}"})))
        for n, cell in enumerate(cells[1:])
    }
    said, body = judged(house, pull, once)
    assert len(body) <= 60_000
    assert [*rows(body)] == [*cells[:1], *cells[1:]]
    assert "omitted for length" in body
    assert len(parse(body)) == 80
    assert said.code == 4


# The job that lists the cells.


def test_the_jobs_of_the_cells_are_those_of_the_base_branch(house: Gatehouse) -> None:
    sha = house.commit("faster", {FILE: matrix("fine", "mine")})
    pull = house.hub_repository.add_pull(sha, base_sha=git(house.work, "rev-parse", "main"))
    house.github.permissions = dict.fromkeys(house.github.permissions, "none")
    house.github.permissions["contents"] = "read"
    event = pull_event(pull, "opened", None)
    said = house.report("pull_request", event, None, by=list_cells, matrix=FILE)
    assert json.loads(said.outputs["cells"]) == [*CELLS]


def test_a_matrix_that_is_new_has_no_jobs_yet(tmp_path: Path, github: GitHub) -> None:
    house = Gatehouse(tmp_path, github)
    house.commit()
    sha = house.commit("faster", {FILE: matrix("fine")})
    pull = house.hub_repository.add_pull(sha, base_sha=git(house.work, "rev-parse", "main"))
    event = pull_event(pull, "opened", None)
    said = house.report("pull_request", event, None, by=list_cells, matrix=FILE)
    assert said.outputs["cells"] == "[]"


def test_a_matrix_with_a_cell_that_cannot_run_here_is_an_error(house: Gatehouse) -> None:
    bad = yaml.safe_dump({"cells": [{"name": "a", "config": CONFIG, "verb": "check"}]})
    house.commit(files={FILE: bad, CONFIG: BASE_CONFIG})
    said, body = judged(house, house.pull(), {})
    assert said.code == 4
    assert "cell a in matrix.yaml has verb: check, which the action cannot use" in body.replace(
        "\\", ""
    )


@pytest.mark.parametrize("name", ["report", "report.html", "Report"])
def test_a_cell_is_not_called_like_an_artifact_of_the_report(name: str) -> None:
    """Its artifact would be `canary-records-report`, which the reporting job uploads too."""
    with pytest.raises(ConfigError, match=f"cell {name} in m.yaml has a name that the action uses"):
        cells_at(lambda path: matrix("fine", name).encode(), "m.yaml")
    assert cells_at(lambda path: matrix("fine", f"{name}s").encode(), "m.yaml")


def test_the_names_of_the_reports_are_those_of_the_action() -> None:
    action = (Path(__file__).parents[2] / "action.yml").read_text()
    found = re.findall(r"name: \$\{\{ inputs\.artifact-name \}\}-(\S+)", action)
    assert sorted(found) == sorted(OF_THE_REPORT)


def test_a_config_that_the_base_branch_lacks_is_an_error_of_its_cell(house: Gatehouse) -> None:
    cells = [{"name": "fine", "config": CONFIG}, {"name": "slow", "config": "gone.yaml"}]
    house.commit(files={FILE: yaml.safe_dump({"cells": cells})})
    _, body = judged(house, house.pull(), good(house, "fine", "slow"))
    assert "gone.yaml of cell slow is missing on the base branch" in rows(body)["slow"]
    assert rows(body)["fine"].startswith("✅&nbsp;pass")
