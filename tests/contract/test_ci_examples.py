"""The jobs of examples/ci for other CIs than GitHub: valid files, and shell that really runs."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from string import Template
from subprocess import CompletedProcess

import pytest
import yaml

from canary.baseline.history import save
from canary.compare.stats import compare_to_baseline
from canary.record import jsonio
from canary.record.types import RunRecord
from canary.report.render import render
from tests.contract.ci_jobs import (
    BUILDKITE,
    GITLAB,
    JENKINS,
    Job,
    all_jobs,
    buildkite,
    gitlab,
    gitlab_jobs,
    job,
    started,
)
from tests.contract.git_server import GitServer, git, serving
from tests.contract.static_checks import clean
from tests.unit.comparing import record, records
from tests.unit.hostile import PAYLOADS, planted

CIS = ("gitlab", "buildkite", "jenkins")
STORED = 3
CODES = {"pass": 0, "regression": 1, "error": 4, "nothing": 2}
"""What the training job left -> the exit code of the reporting job."""
STYLES = {"pass": "success", "regression": "error", "error": "error"}
FIRST_WORDS = {"pass": "Pass", "regression": "Regression", "error": "Error"}
READ_TOKEN, WRITE_TOKEN = "job-token-1", "write-token-2"
TRAIN = """
import json, pathlib, sys
rows = [{"loss": 2 - n / 20, "step": n, "grad_norm": 1.0, "epoch": n / 9} for n in range(1, 21)]
pathlib.Path("out").mkdir()
pathlib.Path("out/trainer_state.json").write_text(json.dumps({"log_history": rows}))
sys.exit(int(pathlib.Path("code").read_text()))
"""
CONFIG = """
name: standin
command: [python3, train.py]
import: {source: out, preset: transformers}
"""


def left(kind: str) -> list[RunRecord]:
    """The runs that a training job left, to be compared with `STORED` quick ones."""
    if kind == "nothing":
        return []
    run = record(STORED + 1, 0.3 if kind == "regression" else 0.1)
    if kind == "error":
        run.status, run.reason = "failed", "ValueError: no good"
    return [run]


def write(runs: list[RunRecord], folder: Path) -> None:
    for run in runs:
        place = folder / "canary_output" / run.run_id
        place.mkdir(parents=True)
        text = jsonio.dumps(run.model_dump(mode="json"))
        (place / "metrics.json").write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history of three runs."""
    folder = tmp_path_factory.mktemp("stored")
    for run in records([0.1, 0.101, 0.099]):
        save(folder, run)
    return folder


@pytest.fixture(scope="module")
def project(stored: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose branch `canary-baselines` has this history."""
    root = tmp_path_factory.mktemp("project")
    work = shutil.copytree(stored, root / "work")
    bare = GitServer(root).make("project")
    git(work, "init", "--quiet")
    git(work, "add", "v2")
    git(work, "commit", "--quiet", "--message", "history")
    git(work, "push", "--quiet", str(bare), "HEAD:refs/heads/canary-baselines")
    return bare


@pytest.fixture
def server(project: Path, tmp_path: Path) -> Iterator[GitServer]:
    """Serves the project. A job's token only reads it."""
    with serving(tmp_path / "server", WRITE_TOKEN) as found:
        found.readers = {"gitlab-ci-token": READ_TOKEN}
        shutil.copytree(project, found.root / "project.git")
        yield found


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The folder in which a job starts."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "--quiet")
    return folder


def of_gitlab(server: GitServer, name: str, **project: str) -> dict[str, str]:
    """The variables that GitLab gives a job: its own ones, those of the file and of the project."""
    content = gitlab()
    given = {
        "CI_JOB_TOKEN": READ_TOKEN,
        "CI_PROJECT_URL": server.url("project").removesuffix(".git"),
        "CI_MERGE_REQUEST_IID": "7",
        "CI_SERVER_HOST": "127.0.0.1",
    } | project
    own = {**content["variables"], **content[name].get("variables", {})}
    return {key: Template(str(value)).safe_substitute(given) for key, value in own.items()} | given


def of_buildkite(stored: Path, artifacts: Path, **more: str) -> dict[str, str]:
    own = {
        "CANARY_HISTORY": str(stored),
        "STANDIN_ARTIFACTS": str(artifacts),
        "BUILDKITE_PULL_REQUEST": "7",
        "BUILDKITE_BRANCH": "$(touch pwned)`touch pwned`",
        "BUILDKITE_PIPELINE_DEFAULT_BRANCH": "main",
    }
    return own | more


def reported(
    ci: str, kind: str, checkout: Path, stored: Path, server: GitServer
) -> CompletedProcess[str]:
    """Run the reporting job of one CI."""
    if ci == "buildkite":
        artifacts = checkout.parent / "artifacts"
        write(left(kind), artifacts)
        return started(job(ci, "canary-report"), checkout, **of_buildkite(stored, artifacts))
    write(left(kind), checkout)
    gitlab_gives = of_gitlab(server, "canary-report")
    environ = gitlab_gives if ci == "gitlab" else {"CANARY_HISTORY": str(stored)}
    return started(job(ci, "canary-report"), checkout, **environ)


def test_gitlab_accepts_its_file() -> None:
    clean(["check-jsonschema", "--builtin-schema", "vendor.gitlab-ci", str(GITLAB)])


def test_buildkite_accepts_its_file() -> None:
    clean(["check-jsonschema", "--builtin-schema", "vendor.buildkite", str(BUILDKITE)])


def named(one: Job) -> str:
    return f"{one.ci}-{one.name}"


@pytest.mark.parametrize("one", all_jobs(), ids=named)
def test_the_shell_is_clean(one: Job) -> None:
    shell = "sh" if one.ci == "jenkins" else "bash"
    clean(["shellcheck", f"--shell={shell}", "-"], f"set -e\n{one.script}\n")


def test_every_job_is_found() -> None:
    assert {named(one) for one in all_jobs()} == {
        *(f"gitlab-canary{name}" for name in ("", "-report", "-note", "-store")),
        *(f"buildkite-canary{name}" for name in ("", "-report")),
        *(f"jenkins-canary{name}" for name in ("", "-report", "-report-clean", "-store")),
    }


def test_no_ci_puts_a_value_into_the_text_of_a_script() -> None:
    """A branch name could otherwise be a command. The shell reads all values as variables."""
    for step in buildkite():
        assert "$" not in step["command"].replace("$$", "")
    text = JENKINS.read_text(encoding="utf-8")
    assert '"""' not in text
    assert re.findall(r"\bsh\b(?! ''')", text) == []
    for one in gitlab_jobs():
        assert "$[[" not in one.script


@pytest.mark.parametrize(
    ("ci", "kind"),
    [
        *(("gitlab", "regression"), ("buildkite", "pass"), ("jenkins", "error")),
        *(("gitlab", "pass"), ("buildkite", "nothing")),
    ],
)
def test_the_report_ends_with_the_canarys_exit_code(
    ci: str, kind: str, checkout: Path, stored: Path, server: GitServer
) -> None:
    done = reported(ci, kind, checkout, stored, server)
    assert done.returncode == CODES[kind], done.stdout + done.stderr
    comment = checkout / "canary_report" / "comment.md"
    assert comment.exists() == (kind in FIRST_WORDS)
    if kind in FIRST_WORDS:
        assert f" {FIRST_WORDS[kind]}: " in comment.read_text(encoding="utf-8").splitlines()[0]
        assert ci != "buildkite" or shown_on_buildkite(checkout) == (
            comment.read_text("utf-8"),
            STYLES[kind],
        )
    assert READ_TOKEN not in done.stdout + done.stderr
    assert not (checkout / "pwned").exists()


def shown_on_buildkite(checkout: Path) -> tuple[str, str]:
    """The annotation on the build's page, and its style."""
    *names, style = (checkout / "annotated").read_text().split()
    assert names == ["--context", "canary", "--style"]
    return (checkout / "annotation.md").read_text(encoding="utf-8"), style


def test_a_history_without_runs_is_no_error(
    checkout: Path, tmp_path: Path, server: GitServer
) -> None:
    done = reported("jenkins", "pass", checkout, tmp_path / "new", server)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No baseline yet" in done.stdout + done.stderr


def test_a_history_that_cannot_be_read_is_an_error(
    checkout: Path, stored: Path, server: GitServer
) -> None:
    server.readers = {}
    assert reported("gitlab", "pass", checkout, stored, server).returncode != 0


def test_without_a_history_the_job_names_the_variable(checkout: Path) -> None:
    for ci in ("buildkite", "jenkins"):
        done = started(job(ci, "canary-report"), checkout)
        assert done.returncode != 0
        assert "CANARY_HISTORY" in done.stderr


def test_gitlab_posts_the_answer_once(checkout: Path, server: GitServer) -> None:
    report = checkout / "canary_report"
    report.mkdir()
    answer = "**Pass**: `x`\n\n$(touch pwned) \"quoted\" 'and' `touch pwned`"
    (report / "comment.md").write_text(answer)
    environ = of_gitlab(server, "canary-note", CANARY_NOTE_TOKEN="note-token-3")
    done = started(job("gitlab", "canary-note"), checkout, **environ)
    assert done.returncode == 0, done.stderr
    words = (checkout / "glab_arguments").read_text()
    assert words.startswith(f"mr\nnote\n7\n--repo\n{server.address}/project\n--unique\n--message\n")
    assert words.endswith(f"{answer}\n")
    assert not (checkout / "pwned").exists()


def test_a_record_cannot_give_gitlab_a_quick_action() -> None:
    """A line that begins with `/merge` would be done by the author of the note."""
    for payload in ["x\n/merge\n\r/approve", *PAYLOADS]:
        run = planted(payload)
        run.status, run.notes = "failed", [payload]
        comment = render(compare_to_baseline(run, [record()]), "markdown")
        assert not [line for line in comment.splitlines() if line.lstrip().startswith("/")]


@pytest.mark.parametrize("verdict", ["pass", "regression"])
def test_gitlab_stores_a_run_that_did_not_get_worse(
    verdict: str, checkout: Path, server: GitServer
) -> None:
    write(left(verdict), checkout)
    environ = of_gitlab(server, "canary-store", CANARY_TOKEN=WRITE_TOKEN)
    done = started(job("gitlab", "canary-store"), checkout, **environ)
    assert done.returncode == 0, done.stdout + done.stderr
    assert WRITE_TOKEN not in done.stdout + done.stderr
    tree = git(server.root / "project.git", "ls-tree", "-r", "--name-only", "canary-baselines")
    assert (f"run-0000{STORED + 1}" in tree) == (verdict == "pass")


def as_runner_leaves_it(name: str, checkout: Path) -> None:
    """What GitLab's runner does with files of an earlier job in the same folder, which may be of a
    merge request. `none` keeps them (gitlab-org/gitlab#17103), `empty` removes all."""
    strategy = gitlab()[name].get("variables", {}).get("GIT_STRATEGY", "fetch")
    if strategy == "fetch":
        git(checkout, "clean", "-ffdx", "--quiet")
    if strategy == "empty":
        shutil.rmtree(checkout)
        checkout.mkdir()


def test_gitlab_stores_no_run_that_another_job_left(checkout: Path, server: GitServer) -> None:
    foreign = record(STORED + 2).model_copy(update={"run_id": "run-of-a-merge-request"})
    write([foreign], checkout)
    as_runner_leaves_it("canary-store", checkout)
    write(left("pass"), checkout)
    environ = of_gitlab(server, "canary-store", CANARY_TOKEN=WRITE_TOKEN)
    done = started(job("gitlab", "canary-store"), checkout, **environ)
    assert done.returncode == 0, done.stdout + done.stderr
    tree = git(server.root / "project.git", "ls-tree", "-r", "--name-only", "canary-baselines")
    assert f"run-0000{STORED + 1}" in tree
    assert "run-of-a-merge-request" not in tree


def test_gitlab_posts_no_answer_that_another_job_left(checkout: Path, server: GitServer) -> None:
    (checkout / "canary_report").mkdir()
    (checkout / "canary_report" / "comment.md").write_text("Pass: of another merge request")
    as_runner_leaves_it("canary-note", checkout)
    environ = of_gitlab(server, "canary-note", CANARY_NOTE_TOKEN="note-token-3")
    done = started(job("gitlab", "canary-note"), checkout, **environ)
    assert done.returncode != 0
    assert not (checkout / "glab_arguments").exists()


def commit_a_run(checkout: Path) -> None:
    """Commit the folder of a run that passed, and an answer."""
    write(left("pass"), checkout)
    (checkout / "canary_report").mkdir()
    (checkout / "canary_report" / "comment.md").write_text("Pass: committed")
    git(checkout, "add", "--force", "canary_output", "canary_report")
    git(checkout, "commit", "--quiet", "--message", "a run")


@pytest.mark.parametrize("ci", ["gitlab", "jenkins"])
def test_a_committed_run_is_no_answer_of_a_training_that_left_none(
    ci: str, checkout: Path, stored: Path, server: GitServer
) -> None:
    commit_a_run(checkout)
    if ci == "jenkins":
        assert started(job(ci, "canary-report-clean"), checkout).returncode == 0
    gitlab_gives = of_gitlab(server, "canary-report")
    environ = gitlab_gives if ci == "gitlab" else {"CANARY_HISTORY": str(stored)}
    done = started(job(ci, "canary-report"), checkout, **environ)
    assert done.returncode == CODES["nothing"], done.stdout + done.stderr
    assert not (checkout / "canary_report" / "comment.md").exists()


@pytest.mark.parametrize("ci", CIS)
def test_a_training_job_leaves_no_committed_run(ci: str, checkout: Path, server: GitServer) -> None:
    commit_a_run(checkout)
    done = started(job(ci, "canary"), checkout, **of_gitlab(server, "canary"))
    assert done.returncode == 2, "there is no canary.yaml"
    assert not list(checkout.glob("canary_output/*/metrics.json"))


@pytest.mark.slow
def test_gitlab_stores_nothing_with_a_jobs_own_token(checkout: Path, server: GitServer) -> None:
    write(left("pass"), checkout)
    token = {"CANARY_TOKEN": READ_TOKEN, "CANARY_TOKEN_USER": "gitlab-ci-token"}
    done = started(
        job("gitlab", "canary-store"), checkout, **of_gitlab(server, "canary-store", **token)
    )
    assert done.returncode != 0


@pytest.mark.parametrize(
    ("kind", "request_", "branch", "count"),
    [
        ("pass", "false", "main", STORED + 1),
        ("pass", "false", "other", STORED),
        ("pass", "7", "main", STORED),  # a fork's branch may have the name of the default branch
        ("regression", "false", "main", STORED),
    ],
)
def test_buildkite_stores_what_passed_on_the_default_branch(
    kind: str, request_: str, branch: str, count: int, checkout: Path, tmp_path: Path
) -> None:
    history, artifacts = tmp_path / "history", tmp_path / "artifacts"
    for run in records([0.1, 0.101, 0.099]):
        save(history, run)
    write(left(kind), artifacts)
    place = {"BUILDKITE_PULL_REQUEST": request_, "BUILDKITE_BRANCH": branch}
    environ = of_buildkite(history, artifacts, **place)
    started(job("buildkite", "canary-report"), checkout, **environ)
    assert len(list(history.rglob("*.json"))) == count


def test_jenkins_stores_a_run(checkout: Path, tmp_path: Path) -> None:
    write(left("pass"), checkout)
    history = str(tmp_path / "history")
    done = started(job("jenkins", "canary-store"), checkout, CANARY_HISTORY=history)
    assert done.returncode == 0, done.stderr
    assert len(list(Path(history).rglob("*.json"))) == 1


def test_jenkins_stores_only_what_is_on_main() -> None:
    stage = JENKINS.read_text(encoding="utf-8").split("stage('canary store')")[1]
    assert re.search(r"when \{\s+beforeAgent true\s+branch 'main'\s+\}", stage)


@pytest.mark.parametrize(
    ("ci", "code", "ends"), [("gitlab", 0, 0), ("buildkite", 3, 4), ("jenkins", 3, 4)]
)
def test_the_training_job_leaves_a_record(
    ci: str, code: int, ends: int, checkout: Path, server: GitServer
) -> None:
    """Also of a training that fails, because the report then says why."""
    for name, text in {"canary.yaml": CONFIG, "train.py": TRAIN, "code": str(code)}.items():
        (checkout / name).write_text(text)
    done = started(job(ci, "canary"), checkout, **of_gitlab(server, "canary"))
    assert done.returncode == ends, done.stdout + done.stderr
    (file,) = checkout.glob("canary_output/*/metrics.json")
    assert json.loads(file.read_text())["status"] == ("failed" if code else "completed")


def test_the_training_jobs_name_no_secret() -> None:
    assert "TOKEN" not in yaml.safe_dump(gitlab()["canary"])
    assert [name for name, one in gitlab().items() if "environment" in one] == ["canary-store"]
    for text in (BUILDKITE, JENKINS):
        assert not re.search(r"token|secret|credential", text.read_text("utf-8"), re.IGNORECASE)


def test_only_the_default_branch_writes_gitlabs_history() -> None:
    rules = gitlab()["canary-store"]["rules"]
    assert rules == [{"if": "$CI_COMMIT_BRANCH && $CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH"}]
