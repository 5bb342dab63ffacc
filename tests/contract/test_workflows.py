"""Workflows, ours and those to paste: valid, pinned, with no more rights than they say."""

from __future__ import annotations

import re
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest
import yaml

from canary.gate.report_job import JOBS
from canary.gate.workflows import CHECKOUT, Answers, rendered
from canary.github.event import Kind
from tests.contract.static_checks import clean, shell_is_clean, zizmor
from tests.contract.workflow_files import (
    ACTION,
    EXAMPLE_ANSWERS,
    EXAMPLES,
    OUR_ACTION,
    OWN,
    ROOT,
    Job,
    example,
    examples,
    jobs,
    load,
    workflows,
)

PINNED = re.compile(
    r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40}  # "
    r"(v\d+\.\d+\.\d+, read in [\w.-]+/[\w.-]+/\S+|.*\bUNVERIFIED\b.*)"
)


def named(value: object) -> str:
    return value.name if isinstance(value, Path) else str(value)


def uses_lines(path: Path) -> list[str]:
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    return [line.removeprefix("- ") for line in lines if re.match(r"(- )?uses:", line)]


def training(examples_only: list[Path]) -> list[Job]:
    """Jobs in which code of a commit under test runs."""
    return [job for job in jobs(examples_only) if "run" in job.modes or "all" in job.modes]


def reporting() -> list[Job]:
    return [job for job in jobs(examples()) if {"report", "plan"} & set(job.modes)]


def job_named(job: Job) -> str:
    return f"{job.file.stem}-{job.name}"


def test_all_examples_are_there() -> None:
    assert {path.stem for path in examples()} == set(EXAMPLE_ANSWERS)
    assert {path.stem for path in OWN} == {"docs", "image", "release", "test"}


def test_an_example_is_what_init_writes() -> None:
    """`python -m tests.contract.workflow_files` writes them anew."""
    for name in EXAMPLE_ANSWERS:
        assert (EXAMPLES / f"{name}.yml").read_text(encoding="utf-8") == example(name), name


def test_the_schema_of_workflows_holds() -> None:
    files = map(str, workflows())
    clean(["check-jsonschema", "--builtin-schema", "vendor.github-workflows", *files])


def test_the_schema_of_dependabot_holds() -> None:
    path = ROOT / ".github" / "dependabot.yml"
    clean(["check-jsonschema", "--builtin-schema", "vendor.dependabot", str(path)])


def test_zizmor_finds_nothing() -> None:
    zizmor(ROOT / ".github", *examples())


@pytest.mark.parametrize(
    ("runner", "compare", "forks"),
    [("docker", "baseline", False), ("container", "ab", True), ("none", "ab", False)],
)
def test_whatever_init_writes_is_valid(
    tmp_path: Path, runner: str, compare: str, forks: bool
) -> None:
    answers = Answers(
        runner=runner,  # type: ignore[arg-type]
        compare=compare,  # type: ignore[arg-type]
        forks=forks,
        configs=("a/one.yaml", "two.yaml"),
        model_cache="/srv/huggingface",
    )
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    for name, text in rendered(answers).items():
        (folder / name).write_text(text, encoding="utf-8")
    files = sorted(folder.iterdir())
    clean(["check-jsonschema", "--builtin-schema", "vendor.github-workflows", *map(str, files)])
    zizmor(*files)


def test_no_workflow_runs_with_rights_of_the_base_on_the_head() -> None:
    for path in workflows():
        assert "pull_request_target" not in load(path)["on"], path.name
        assert "pull_request_target" not in path.read_text(encoding="utf-8"), path.name


def test_an_action_is_pinned_with_version_and_source_and_everywhere_alike() -> None:
    """Also where an update by dependabot reaches only some of the places."""
    pins: dict[str, set[str]] = {}
    for path in [*workflows(), ACTION]:
        for line in uses_lines(path):
            if line.startswith("uses: ./.github/workflows/") or line == f"uses: {OUR_ACTION}":
                continue
            assert line == f"uses: {CHECKOUT}" or PINNED.fullmatch(line), line
            if not line.startswith("uses: ./"):
                name, pin = line.split("@", 1)
                pins.setdefault(name, set()).add(pin.partition(", read in")[0])
    assert pins
    assert {name: len(found) for name, found in pins.items()} == dict.fromkeys(pins, 1), pins


@pytest.mark.parametrize("path", workflows(), ids=named)
def test_no_expression_reaches_a_shell(path: Path) -> None:
    for job in jobs([path]):
        for step in job.steps:
            script = step.get("run", "")
            assert "${{" not in script, (job.name, script)
            if script:
                shell_is_clean(script)


def test_rights_are_none_at_the_top_and_named_in_each_job() -> None:
    for path in workflows():
        assert load(path)["permissions"] == {}, path
        for job in jobs([path]):
            asked = job.content["permissions"]
            assert isinstance(asked, dict), job.name
            assert asked, job.name


@pytest.mark.parametrize("job", training(examples()), ids=job_named)
def test_the_half_that_trains_is_a_job_of_its_own_that_can_write_nothing_and_knows_no_secret(
    job: Job,
) -> None:
    assert job.modes == ["run"]
    assert not job.hosted
    assert job.content["permissions"] in ({}, {"contents": "read"})
    text = yaml.safe_dump(job.content)
    assert "secrets" not in text
    assert "token" not in text
    assert "environment" not in job.content
    checkouts = [step for step in job.steps if step["uses"].startswith("actions/checkout@")]
    assert [step["with"]["persist-credentials"] for step in checkouts] == [False]


@pytest.mark.parametrize("job", reporting(), ids=job_named)
def test_the_half_with_the_token_runs_nothing_but_the_action(job: Job) -> None:
    assert job.hosted
    assert [step["uses"] for step in job.steps] == [OUR_ACTION]


def test_an_answer_waits_for_the_training_and_comes_even_when_it_died() -> None:
    for job in reporting():
        if "report" in job.modes and "workflow_run" not in load(job.file)["on"]:
            assert "run" in job.content["needs"], job
            assert job.content["if"].startswith("always() && "), job


def test_the_plan_decides_what_starts_and_the_file_repeats_none_of_it() -> None:
    """Each job asks for its own name among the jobs of the plan."""
    jobs_of = load(EXAMPLES / "model-cache.yml")["jobs"]
    planned = {name for named in JOBS.values() for name in named.split()}
    assert set(jobs_of) == {"plan", *planned}
    for name in planned:
        condition = f"contains(needs.plan.outputs.jobs, '{name}')"
        assert jobs_of[name]["if"].removeprefix("always() && ") == condition
    assert "if" not in jobs_of["plan"]


def test_only_the_default_branch_writes_the_baseline() -> None:
    """A pull request's answer comes from a job that cannot; the plan tells them apart."""
    writing = {
        job.name
        for job in jobs(examples())
        if job.content["permissions"].get("contents") == "write"
    }
    assert writing == {"record"}
    assert [kind for kind, named in JOBS.items() if "record" in named] == [Kind.RECORD]


def test_the_one_secret_is_kept_from_code_of_pull_requests() -> None:
    """Only prefetch has it, on the default branch, in an environment of its own."""
    with_secret = [job for job in jobs(examples()) if "secrets." in yaml.safe_dump(job.content)]
    assert [(job.file.stem, job.name, job.modes) for job in with_secret] == [
        ("model-cache", "prefetch", ["prefetch"])
    ]
    job = with_secret[0]
    assert job.content["environment"] == "canary-prefetch"
    assert "default_branch" in job.steps[0]["with"]["ref"]
    assert not any("inherit" in str(job.content.get("secrets", "")) for job in jobs(workflows()))


def test_the_pair_for_forks_finds_each_other_by_name() -> None:
    first, second = load(EXAMPLES / "canary-fork.yml"), load(EXAMPLES / "canary-fork-report.yml")
    assert second["on"]["workflow_run"]["workflows"] == [first["name"]]
    assert second["on"]["workflow_run"]["types"] == ["requested", "completed"]
    assert [job.modes for job in jobs([EXAMPLES / "canary-fork-report.yml"])] == [["report"]]


def test_an_event_that_trains_nothing_ends_no_training() -> None:
    """A job that is skipped does not enter its group; a whole workflow does at once."""
    for path in examples():
        assert "concurrency" not in load(path), path.name
    group = load(EXAMPLES / "canary.yml")["jobs"]["run"]["concurrency"]
    assert "github.event_name" in group["group"]
    assert group["cancel-in-progress"] == "${{ github.event_name == 'pull_request' }}"


def test_inputs_of_the_examples_are_the_actions_own() -> None:
    known = set(yaml.safe_load(ACTION.read_text(encoding="utf-8"))["inputs"])
    for job in jobs(examples()):
        for step in job.steps:
            if step.get("uses") == OUR_ACTION:
                assert set(step["with"]) <= known


def test_the_image_of_this_checkout_is_named_by_digest_or_not_at_all() -> None:
    text = (ROOT / "image.txt").read_text(encoding="utf-8")
    assert re.fullmatch(r"(ghcr\.io/[a-z0-9./_-]+@sha256:[0-9a-f]{64}\n)?", text)


@pytest.mark.parametrize("other", ["", "planted.whl"])
def test_a_release_publishes_no_file_without_a_hash(tmp_path: Path, other: str) -> None:
    job = load(ROOT / ".github" / "workflows" / "release.yml")["jobs"]["tag"]
    (script,) = [step["run"] for step in job["steps"] if "SHA256SUMS" in step.get("run", "")]
    for name in ("b.whl", "B.tar.gz"):
        (tmp_path / name).write_text(name)
    hashes = [f"{sha256(name.encode()).hexdigest()}  {name}\n" for name in ("B.tar.gz", "b.whl")]
    (tmp_path / "SHA256SUMS").write_text("".join(hashes))
    if other:
        (tmp_path / other).touch()
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == bool(other), done.stderr
    assert other in done.stdout
