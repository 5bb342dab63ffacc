"""`canary init`: what it writes, and what it refuses."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment
from typer.testing import CliRunner

from canary.cli import app
from canary.config.load import load_config
from canary.errors import UsageError
from canary.gate.init import default_branch, write
from canary.gate.inputs import nightly_of
from canary.gate.workflows import Answers, rendered
from tests.contract.git_server import git

ZERO = "0" * 64
OWN_IMAGE = f"ghcr.io/o/i@sha256:{'a' * 64}"


COMPILED: dict[str, Environment] = {}


@pytest.fixture(autouse=True)
def _compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each workflow makes an environment of Jinja, and compiling a template takes longest."""

    def same(**options: Any) -> Environment:
        return COMPILED.setdefault("workflows", Environment(**options))

    monkeypatch.setattr("canary.gate.workflows.Environment", same)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def canary(answers: Answers | None = None) -> Any:
    """The workflow for these answers, read as YAML; `on` is YAML's word for true."""
    return yaml.safe_load(rendered(answers or Answers())["canary.yml"])


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["init", *arguments])
    if done.exception:
        raise done.exception
    return done.output


def test_nothing_is_asked_and_one_workflow_is_written(here: Path) -> None:
    said = run()
    (path,) = (here / ".github" / "workflows").iterdir()
    assert path.name == "canary.yml"
    assert "gh workflow run canary.yml -f task=bootstrap" in said
    assert "?" not in said


def test_the_workflow_is_short_and_says_no_default(here: Path) -> None:
    text = rendered(Answers())["canary.yml"]
    assert len(text.splitlines()) <= 40
    for name in ("canary.yaml", "baseline", "docker", "timeout", "status:"):
        assert name not in text


def test_the_written_configs_load_and_the_nightly_run_finds_the_longer_one(here: Path) -> None:
    run()
    assert load_config(here / "canary.yaml", []).config.thresholds.base_tier == "smoke"
    longer = load_config(here / nightly_of("canary.yaml"), []).config
    assert longer.thresholds.base_tier == "nightly"
    assert "schedule" in canary()[True]
    assert "schedule" not in canary(Answers(nightly=False))[True]


def test_a_config_that_is_there_is_left_alone(here: Path) -> None:
    (here / "canary.yaml").write_text("training_type: sft\n")
    said = run("--force", "--no-nightly")
    assert (here / "canary.yaml").read_text() == "training_type: sft\n"
    assert "wrote canary.yaml" not in said


@pytest.mark.parametrize(
    ("theirs", "watched"),
    [
        ("name: own\ncommand: [python, train.py]\nmax_steps: 50\n", ("python", "train.py")),
        ("training_type: sft\nmodel_name: my/model\nmax_steps: 50\n", ()),
    ],
)
def test_the_nightly_trains_what_the_config_that_is_there_trains(
    here: Path, theirs: str, watched: tuple[str, ...]
) -> None:
    """And no DPO on the embedded model."""
    (here / "sub").mkdir()
    (here / "sub" / "canary.yaml").write_text(theirs)
    said = run("--config", "sub/canary.yaml")
    own = load_config(here / "sub" / "canary.yaml").config
    nightly = load_config(here / "sub" / "canary-nightly.yaml").config
    assert nightly.command == watched
    assert (nightly.training_type, nightly.model_name) == (own.training_type, own.model_name)
    assert nightly.name == f"{own.name}-nightly"
    assert nightly.thresholds.base_tier == "nightly"
    assert "wrote sub/canary-nightly.yaml" in said
    assert "Set max_steps in sub/canary-nightly.yaml" in said
    assert "Set the model and the data" not in said


def test_nothing_is_overwritten_nor_half_written_without_force(here: Path) -> None:
    theirs = here / ".github" / "workflows" / "canary.yml"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("mine\n")
    with pytest.raises(UsageError, match=r"already there.*--force"):
        run("--forks")
    assert theirs.read_text() == "mine\n"
    assert [path.name for path in theirs.parent.iterdir()] == ["canary.yml"]
    assert not (here / "canary.yaml").exists()
    run("--force")
    assert theirs.read_text() == rendered(Answers())["canary.yml"]


def test_forks_add_two_files_and_change_nothing_in_the_first() -> None:
    files = rendered(Answers(forks=True))
    assert list(files) == ["canary.yml", "canary-fork.yml", "canary-fork-report.yml"]
    assert files["canary.yml"] == rendered(Answers())["canary.yml"]


def test_alternation_needs_no_stored_baseline() -> None:
    content = canary(Answers(compare="ab", nightly=False))
    assert set(content[True]) == {"pull_request", "workflow_dispatch"}
    assert "bootstrap" not in content[True]["workflow_dispatch"]["inputs"]["task"]["options"]
    for name in ("run", "report"):
        assert content["jobs"][name]["steps"][-1]["with"]["compare"] == "ab"


def test_a_prefetch_is_offered_where_models_are_downloaded() -> None:
    content = canary(Answers(model_cache="/srv/hf"))
    assert content["jobs"]["run"]["steps"][-1]["with"]["model-cache"] == "/srv/hf"
    assert content["jobs"]["prefetch"]["steps"][-1]["with"]["model-cache"] == "/srv/hf"
    assert "prefetch" in content[True]["workflow_dispatch"]["inputs"]["task"]["options"]
    assert "prefetch" not in rendered(Answers())["canary.yml"]


def test_the_hosted_form_is_ten_lines_and_asks_for_no_gpu(here: Path) -> None:
    said = run("--runner", "hosted")
    text = (here / ".github/workflows/canary.yml").read_text()
    assert len(text.splitlines()) <= 12
    assert "canary ab canary.yaml --base" in text
    assert "NVIDIA" not in said
    assert not (here / "canary-nightly.yaml").exists()
    run("--labels", "ubuntu-24.04", "--force")
    content = yaml.safe_load((here / ".github/workflows/canary.yml").read_text())
    assert content["jobs"]["canary"]["runs-on"] == "ubuntu-24.04"


def test_on_a_hosted_runner_every_config_is_judged_also_after_a_red_one(here: Path) -> None:
    run("--runner", "hosted", "--config", "a.yaml", "--config", "b.yaml", "--force")
    content = yaml.safe_load((here / ".github/workflows/canary.yml").read_text())
    first, second = content["jobs"]["canary"]["steps"][-2:]
    assert ("canary ab a.yaml" in first["run"], "if" in first) == (True, False)
    assert ("canary ab b.yaml" in second["run"], second["if"]) == (True, "${{ !cancelled() }}")


@pytest.mark.parametrize(
    "options",
    [("--forks",), ("--image", OWN_IMAGE), ("--compare", "ab"), ("--labels", "gpu")],
    ids=str,
)
def test_what_a_hosted_runner_cannot_have_is_refused(here: Path, options: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=options[0]):
        run("--runner", "hosted", *options)


def test_a_path_is_a_config_to_write(here: Path) -> None:
    assert run("mine/canary.yaml", "--type", "kto").startswith("wrote mine/canary.yaml; run it")
    assert load_config(here / "mine/canary.yaml").config.training_type == "kto"
    assert not (here / ".github").exists()
    for options, said in ((("a", "--forks"), "only --type"), (("--type", "kto"), "init canary")):
        with pytest.raises(UsageError, match=said):
            run(*options)


def test_an_image_that_nobody_named_is_a_placeholder_that_says_so() -> None:
    text = rendered(Answers(runner="container"))["canary.yml"]
    _, after = text.split(f"@sha256:{ZERO}")
    assert "UNVERIFIED" in after.splitlines()[0]


@pytest.mark.parametrize(
    "bad",
    [
        Answers(labels=("gpu]\njobs: {}",)),
        Answers(labels=()),
        Answers(configs=()),
        Answers(configs=("../other.yaml",)),
        Answers(configs=("a/../../b.yaml",)),
        Answers(configs=("/etc/passwd",)),
        Answers(configs=("a: b",)),
        Answers(configs=("${{secrets.X}}",)),
        Answers(branch="main]\n  pull_request_target: ["),
        Answers(model_cache="relative"),
        Answers(model_cache="/srv/hf\n          token: x"),
        Answers(image="ghcr.io/o/i:latest"),
        Answers(image=OWN_IMAGE, runner="none"),
        Answers(runner="podman"),  # type: ignore[arg-type]
        Answers(compare="both"),  # type: ignore[arg-type]
        Answers(labels=("ubuntu-latest", "gpu")),
    ],
    ids=repr,
)
def test_an_answer_cannot_break_out_of_the_yaml(bad: Answers) -> None:
    with pytest.raises(UsageError):
        rendered(bad)


def test_words_that_yaml_would_read_as_something_else_stay_words() -> None:
    content = canary(Answers(branch="1.0", labels=("true", "100"), configs=("1.0",)))
    assert content[True]["push"]["branches"] == ["1.0"]
    assert content["jobs"]["run"]["runs-on"] == ["true", "100"]
    assert content["jobs"]["run"]["steps"][-1]["with"]["config"] == "1.0"


def test_several_configs_stand_one_per_line() -> None:
    job = canary(Answers(configs=("a/one.yaml", "two.yaml")))["jobs"]["report"]
    assert job["steps"][-1]["with"]["config"].splitlines() == ["a/one.yaml", "two.yaml"]


def test_options_reach_the_workflow(here: Path) -> None:
    run("--runner", "none", "--labels", "self-hosted, a100", "--config", "x/c.yaml", "-o", "out")
    job = yaml.safe_load((here / "out" / "canary.yml").read_text())["jobs"]["run"]
    assert job["runs-on"] == ["self-hosted", "a100"]
    assert job["steps"][-1]["with"] == {"mode": "run", "config": "x/c.yaml", "engine": "none"}
    assert (here / "x" / "c-nightly.yaml").exists()
    job = canary(Answers(runner="container", labels=("arc-gpu",), image=OWN_IMAGE))["jobs"]["run"]
    assert (job["container"], job["runs-on"]) == ({"image": OWN_IMAGE}, ["arc-gpu"])
    assert job["steps"][-1]["with"]["engine"] == "none"


def test_what_is_left_to_do_names_the_secret_and_the_danger_of_forks(tmp_path: Path) -> None:
    answers = Answers(forks=True, model_cache="/srv/hf")
    said = write(answers, tmp_path, tmp_path / "w")
    assert "approval for all external contributors" in said
    assert "HF_TOKEN" in said


def test_the_default_branch_is_that_of_the_clone(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert default_branch(tmp_path) is None
    git(tmp_path, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk")
    assert default_branch(tmp_path) == "trunk"
    assert canary(Answers(branch="trunk"))[True]["push"]["branches"] == ["trunk"]


def test_an_image_of_ones_own_reaches_the_run_step_with_docker(here: Path) -> None:
    said = run("--image", OWN_IMAGE)
    job = yaml.safe_load((here / ".github/workflows/canary.yml").read_text())
    assert job["jobs"]["run"]["steps"][-1]["with"]["image"] == OWN_IMAGE
    assert "Until a release exists" not in said
    assert "Until a release exists" in run("--force")


def test_a_subdirectory_of_a_repository_is_no_place_for_workflows(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "-q", str(here)], check=True)
    (here / "deep").mkdir()
    monkeypatch.chdir(here / "deep")
    with pytest.raises(UsageError, match=f"at its root, {here.resolve()}"):
        run()
    run("-o", "../.github/workflows")


def test_a_default_branch_that_cannot_be_read_is_said_to_be_a_guess(here: Path) -> None:
    assert "assuming that the default branch is main" in run()
    assert "branches: [main]" in (here / ".github/workflows/canary.yml").read_text()


@pytest.mark.parametrize("content", [None, "a: [", "no_such_key: 1\n", "just words\n"])
def test_a_config_that_is_there_must_be_one(here: Path, content: str | None) -> None:
    path = here / "c.yaml"
    if content is None:
        path.mkdir()
    else:
        path.write_text(content)
    with pytest.raises(UsageError, match=r"c\.yaml"):
        run("--config", "c.yaml")
    assert not (here / ".github").exists()


def test_a_config_whose_command_the_workflows_will_give_is_one_too(here: Path) -> None:
    (here / "canary.yaml").write_text("name: own\ntraining_type: exec\nmax_steps: 50\n")
    run()
    assert "extends: canary.yaml" in (here / "canary-nightly.yaml").read_text()
