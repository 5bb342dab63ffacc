"""Render the workflows that `canary init` writes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal, get_args

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from canary.errors import UsageError

Runner = Literal["docker", "container", "none"]
Compare = Literal["baseline", "ab"]

PINS = {
    "canary": "rlhf-canary/rlhf-canary@v1  # replace with the commit SHA of a release",
    "checkout": "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1"
    "  # v7.0.1, read in astral-sh/ruff/.github/workflows/publish-docs.yml",
}
IMAGE = "ghcr.io/rlhf-canary/rlhf-canary"
PLACEHOLDER = f"{IMAGE}@sha256:{'0' * 64}"
"""Not a real image: a digest is known only once a release exists."""

PATH = re.compile(r"(?!/)(?!(?:.*/)?\.\.(?:/|$))[\w./-]+")
FOLDER = re.compile(r"/[\w./-]+")
WORD = re.compile(r"[A-Za-z0-9][\w.-]*")
BRANCH = re.compile(r"[A-Za-z0-9][\w./-]*")
BY_DIGEST = re.compile(r"[a-z0-9][a-z0-9./_:-]*@sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Answers:
    """Answers to `canary init`'s questions. The examples are written with the defaults."""

    runner: Runner = "docker"
    """docker: the action starts a container; container: the job runs in one; none: no container."""
    forks: bool = False
    configs: tuple[str, ...] = ("canary.yaml",)
    labels: tuple[str, ...] = ("self-hosted", "gpu")
    nightly: bool = True
    compare: Compare = "baseline"
    model_cache: str = ""
    """Hugging Face home on the runner; empty if models and data need no download."""
    image: str = ""
    """With digest. Empty: a placeholder with `container`, the release's image with `docker`."""
    branch: str = "main"
    """The default branch."""

    @property
    def runs_on(self) -> str:
        """The labels as YAML."""
        return _flow(self.labels)

    @property
    def branches(self) -> str:
        """The default branch as a YAML list."""
        return _flow((self.branch,))

    @property
    def nightly_configs(self) -> tuple[str, ...]:
        """The longer canary, then the canaries of every pull request."""
        first = self.configs[0]
        stem, dot, ending = first.rpartition(".")
        return (f"{stem}-nightly.{ending}" if dot else f"{first}-nightly", *self.configs)


def _flow(words: tuple[str, ...]) -> str:
    """Return a YAML list on one line, with words quoted that YAML would read as another type."""
    text: str = yaml.safe_dump(list(words), default_flow_style=True, width=10**6)
    return text.strip()


def checked(answers: Answers) -> Answers:
    """Return the answers if none of them can break the YAML.

    Raises:
        UsageError: an answer cannot be written into a workflow; the message names its option.
    """
    _one_of("--runner", answers.runner, get_args(Runner))
    _one_of("--compare", answers.compare, get_args(Compare))
    for config in answers.configs:
        _matches("--config", config, PATH, "a path inside the repository")
    for label in answers.labels:
        _matches("--labels", label, WORD, "labels of letters, digits, dots and dashes")
    _matches("--branch", answers.branch, BRANCH, "the name of the default branch")
    if not answers.configs or not answers.labels:
        raise UsageError("you need a config and a label", "--config canary.yaml --labels gpu")
    if answers.model_cache:
        _matches("--model-cache", answers.model_cache, FOLDER, "an absolute path on the runner")
    if answers.image:
        _matches("--image", answers.image, BY_DIGEST, "an image with digest, NAME@sha256:...")
        if answers.runner == "none":
            raise UsageError("--image has no effect with --runner none", "leave it out")
    return answers


def _one_of(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"{option} {value} is unknown", f"use one of {', '.join(choices)}")


def _matches(option: str, value: str, pattern: re.Pattern[str], wanted: str) -> None:
    if not pattern.fullmatch(value):
        raise UsageError(f"{option} {value!r} cannot be used", f"give {wanted}")


def wanted(answers: Answers) -> tuple[str, ...]:
    """Return the names of the templates for these answers, in the order of their use."""
    names = ["fork-pull-request", "fork-report"] if answers.forks else ["pull-request"]
    if answers.compare == "baseline":
        names += ["bootstrap", "baseline", "accept"]
    if answers.nightly:
        names.append("nightly")
    if answers.model_cache:
        names.append("prefetch")
    return tuple(names)


def superseded(answers: Answers) -> dict[str, str]:
    """Return file name -> text of pull request workflows for the other answer about forks: with
    both kinds, each pull request would train twice."""
    other = rendered(replace(answers, forks=not answers.forks))
    return {name: text for name, text in other.items() if name not in rendered(answers)}


def rendered(answers: Answers) -> dict[str, str]:
    """Return file name -> text of every workflow."""
    return {f"canary-{name}.yml": workflow(name, answers) for name in wanted(answers)}


def workflow(name: str, answers: Answers) -> str:
    """Return one workflow as text.

    The nightly one always compares with the history, because it has no base commit.

    Raises:
        UsageError: an answer cannot be written into a workflow.
    """
    if name == "nightly":
        answers = replace(answers, compare="baseline")
    environment = Environment(
        loader=PackageLoader("canary", "templates/workflows"),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        block_start_string="[%",
        block_end_string="%]",
        variable_start_string="[[",
        variable_end_string="]]",
        comment_start_string="[#",
        comment_end_string="#]",
    )
    template = environment.get_template(f"{name}.yml.jinja")
    return template.render(a=checked(answers), pins=PINS, placeholder=PLACEHOLDER)


@dataclass(frozen=True)
class Permission:
    """A permission of a job, with its reason."""

    job: str
    scope: str
    access: str
    reason: str


JOB = re.compile(r"  ([a-z]+):")
ASKED = re.compile(r"      ([a-z-]+): (read|write)  # (.+)")


def permissions(text: str) -> list[Permission]:
    """Return the permissions in a workflow, with the reasons from its comments."""
    found: list[Permission] = []
    job = ""
    for line in text[text.index("\njobs:\n") :].splitlines():
        if heading := JOB.fullmatch(line):
            job = heading[1]
        elif asked := ASKED.fullmatch(line):
            found.append(Permission(job, asked[1], asked[2], asked[3]))
    return found
