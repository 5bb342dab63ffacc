"""The verb `init`: asks, where someone is there to answer, and writes the workflows."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from canary.gate.init import Machine
    from canary.gate.workflows import Answers

RUNNER_QUESTION = (
    "How does the GPU runner start the canary? docker: it has docker;"
    " container: jobs run in containers (ARC, Kubernetes); none: neither"
)


def init(
    runner: Annotated[
        str | None,
        typer.Option(help="What the GPU runner has: docker, container or none [docker]."),
    ] = None,
    forks: Annotated[
        bool | None, typer.Option("--forks/--no-forks", help="Pull requests from forks too.")
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", help="Config, may be repeated [canary.yaml].")
    ] = None,
    labels: Annotated[
        str | None, typer.Option(help="Labels of the GPU runner [self-hosted,gpu].")
    ] = None,
    nightly: Annotated[
        bool | None, typer.Option("--nightly/--no-nightly", help="A longer canary every night.")
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(help="baseline: stored runs; ab: base and head in alternation [baseline]."),
    ] = None,
    model_cache: Annotated[
        str | None,
        typer.Option(help="Hugging Face home on the runner, where models or data are downloaded."),
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="With --runner container: the image, by digest.")
    ] = None,
    output_dir: Annotated[
        Path, typer.Option("-o", "--output-dir", help="Folder of the workflows.")
    ] = Path(".github/workflows"),
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite workflows.")] = False,
) -> None:
    """Write the workflows that gate pull requests, and say what they need."""
    from canary.gate.init import default_branch, look_at_machine, summary, write
    from canary.gate.workflows import Answers

    here = Path.cwd()
    given: dict[str, object] = {
        "runner": runner,
        "forks": forks,
        "configs": tuple(config) if config else None,
        "labels": _words(labels) if labels is not None else None,
        "nightly": nightly,
        "compare": compare,
        "model_cache": model_cache,
        "image": image,
        "branch": default_branch(here),
    }
    if not yes and someone_is_there():
        given |= _asked(given, look_at_machine(shutil.which, os.environ), Answers())
    answers = Answers(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    typer.echo(summary(answers, write(answers, here, output_dir, force)))


def someone_is_there() -> bool:
    """Whether a question would be answered."""
    return sys.stdin.isatty()


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.replace(",", " ").split() if word)


def _asked(given: dict[str, object], machine: Machine, usual: Answers) -> dict[str, object]:
    """Answers to what the options left open."""
    found: dict[str, object] = {}

    def open_question(name: str) -> bool:
        return given[name] is None

    typer.echo(machine.text, err=True)
    if open_question("runner"):
        found["runner"] = _text(RUNNER_QUESTION, machine.runner)
    if open_question("labels"):
        found["labels"] = _words(_text("Labels of the GPU runner", ",".join(usual.labels)))
    if open_question("configs"):
        found["configs"] = _words(_text("Canary configs", ",".join(usual.configs)))
    if open_question("forks"):
        found["forks"] = _yes("Do pull requests come from forks?", usual.forks)
    if open_question("compare"):
        found["compare"] = _text(
            "Compare with stored runs (baseline), or train both commits every time (ab)?",
            usual.compare,
        )
    if open_question("nightly"):
        found["nightly"] = _yes("A longer canary every night?", usual.nightly)
    if open_question("model_cache"):
        found["model_cache"] = _text(
            "Hugging Face home on the runner, if models or data come from the hub", ""
        )
    return found


def _text(question: str, usual: str) -> str:
    return str(typer.prompt(question, default=usual, err=True)).strip()


def _yes(question: str, usual: bool) -> bool:
    return bool(typer.confirm(question, default=usual, err=True))
