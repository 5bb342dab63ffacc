"""Render the workflows that `canary init` writes."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Literal, get_args

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from canary.errors import UsageError

Runner = Literal["docker", "container", "none"]
Compare = Literal["baseline", "ab"]

ACTION = "rlhf-canary/rlhf-canary@v1"
CHECKOUT = "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1  # v7.0.1"
"""Its commit was read in astral-sh/ruff/.github/workflows/publish-docs.yml."""
PLACEHOLDER = f"ghcr.io/rlhf-canary/rlhf-canary@sha256:{'0' * 64}"
"""Not a real image: a digest is known only once a release exists."""
HOSTED = "ubuntu-latest"
CONFIG = "canary.yaml"
"""The default of the action's input."""

PATH = re.compile(r"(?!/)(?!(?:.*/)?\.\.(?:/|$))[\w./-]+")
FOLDER = re.compile(r"/[\w./-]+")
WORD = re.compile(r"[A-Za-z0-9][\w.-]*")
BRANCH = re.compile(r"[A-Za-z0-9][\w./-]*")
BY_DIGEST = re.compile(r"[a-z0-9][a-z0-9./_:-]*@sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Answers:
    """The options of `canary init`. The examples are written with the defaults."""

    runner: Runner = "docker"
    """docker: the action starts a container; container: the job runs in one; none: no container."""
    forks: bool = False
    configs: tuple[str, ...] = (CONFIG,)
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
    def hosted(self) -> bool:
        """Whether GitHub's own machines judge, and only what is learned."""
        return any(label.startswith("ubuntu-") for label in self.labels)

    @property
    def tasks(self) -> tuple[str, ...]:
        """What a person may dispatch."""
        tasks = ["train", "nightly"]
        if self.compare == "baseline":
            tasks.append("bootstrap")
        if self.model_cache:
            tasks.append("prefetch")
        return tuple(tasks)

    def inputs(self, mode: str) -> str:
        """Return the action's inputs that differ from their defaults, as a YAML map on one line."""
        given = {"mode": mode}
        if self.configs != (CONFIG,):
            given["config"] = "\n".join(self.configs)
        if mode in ("run", "report") and self.compare == "ab":
            given["compare"] = "ab"
        if mode == "run" and self.runner != "docker":
            given["engine"] = "none"
        elif mode == "run" and self.image:
            given["image"] = self.image
        if mode in ("run", "prefetch") and self.model_cache:
            given["model-cache"] = self.model_cache
        shown = (f"{name}: {_scalar(value)}" for name, value in given.items())
        return f"{{{', '.join(shown)}}}"


def flow(words: tuple[str, ...]) -> str:
    """Return a YAML list on one line, with words quoted that YAML would read as another type."""
    text: str = yaml.safe_dump(list(words), default_flow_style=True, width=10**6)
    return text.strip()


def _scalar(text: str) -> str:
    return json.dumps(text) if "\n" in text else flow((text,))[1:-1]


def checked(answers: Answers) -> Answers:
    """Return the answers if none of them can break the YAML.

    Raises:
        UsageError: an answer cannot be written into a workflow; the message names its option.
    """
    _one_of("--runner", answers.runner, (*get_args(Runner), "hosted"))
    _one_of("--compare", answers.compare, get_args(Compare))
    for config in answers.configs:
        _matches("--config", config, PATH, "a path inside the repository")
    for label in answers.labels:
        _matches("--labels", label, WORD, "labels of letters, digits, dots and dashes")
    _matches("the default branch", answers.branch, BRANCH, "it another name")
    if not answers.configs or not answers.labels:
        raise UsageError("you need a config and a label", "--config canary.yaml --labels gpu")
    if answers.model_cache:
        _matches("--model-cache", answers.model_cache, FOLDER, "an absolute path on the runner")
    if answers.image:
        _matches("--image", answers.image, BY_DIGEST, "an image with digest, NAME@sha256:...")
        if answers.runner == "none":
            raise UsageError("--image has no effect with --runner none", "leave it out")
    if answers.hosted:
        _for_hosted(answers)
    return answers


def _for_hosted(answers: Answers) -> None:
    """Raise a UsageError for what a hosted runner cannot have."""
    usual = Answers()
    for name in ("runner", "forks", "compare", "model_cache", "image"):
        if getattr(answers, name) != getattr(usual, name):
            option = name.replace("_", "-")
            raise UsageError(
                f"--{option} has no effect on a hosted runner",
                "leave it out, or name the labels of your GPU runner",
            )
    if len(answers.labels) > 1:
        raise UsageError("a hosted runner has one label", f"--labels {HOSTED}")


def _one_of(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"{option} {value} is unknown", f"use one of {', '.join(choices)}")


def _matches(option: str, value: str, pattern: re.Pattern[str], wanted: str) -> None:
    if not pattern.fullmatch(value):
        raise UsageError(f"{option} {value!r} cannot be used", f"give {wanted}")


def rendered(answers: Answers) -> dict[str, str]:
    """Return file name -> text of the workflows for these answers.

    Raises:
        UsageError: as `checked`.
    """
    checked(answers)
    templates = {"canary.yml": "hosted" if answers.hosted else "canary"}
    if answers.forks:
        templates |= {f"{name}.yml": name for name in ("canary-fork", "canary-fork-report")}
    environment = Environment(
        loader=PackageLoader("canary", "templates/workflows"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        # GitHub's expressions use double braces.
        block_start_string="[%",
        block_end_string="%]",
        variable_start_string="[[",
        variable_end_string="]]",
        comment_start_string="[#",
        comment_end_string="#]",
    )
    return {
        file: environment.get_template(f"{name}.yml.jinja").render(
            a=answers, flow=flow, action=ACTION, checkout=CHECKOUT, placeholder=PLACEHOLDER
        )
        for file, name in templates.items()
    }
