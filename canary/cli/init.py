"""The verb `init`: writes a config, or the workflow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from canary.config.samples import KINDS, write_sample
from canary.config.trainers import DEFAULT_TRAINER
from canary.errors import UsageError

ConfigFile = Annotated[
    Path | None, typer.Argument(help="A config to write, instead of the workflow.")
]
TrainingType = Annotated[
    str | None,
    typer.Option("--type", help=f"What the config trains: {', '.join(KINDS)} [{DEFAULT_TRAINER}]."),
]
RunnerKind = Annotated[
    str | None,
    typer.Option(
        help="hosted: a CPU machine of GitHub judges only what is learned. Your GPU runner:"
        " docker, container or none [docker]."
    ),
]
Forks = Annotated[
    bool | None, typer.Option("--forks/--no-forks", help="Gate pull requests from forks too.")
]
Configs = Annotated[
    list[str] | None, typer.Option("--config", help="Config; may be repeated [canary.yaml].")
]
Labels = Annotated[str | None, typer.Option(help="Labels of the GPU runner [self-hosted,gpu].")]
Nightly = Annotated[
    bool | None, typer.Option("--nightly/--no-nightly", help="Run the canary every night too.")
]
Against = Annotated[
    str | None,
    typer.Option(help="baseline: compare with stored runs; ab: train both commits [baseline]."),
]
ModelCache = Annotated[
    str | None,
    typer.Option(help="Hugging Face home on the runner, for downloaded models and data."),
]
Image = Annotated[str | None, typer.Option(help="Image of the canary, by digest [the release's].")]
WorkflowsDir = Annotated[
    Path | None,
    typer.Option("-o", "--output-dir", help="Folder for the workflow [.github/workflows]."),
]


def init(
    path: ConfigFile = None,
    type_: TrainingType = None,
    runner: RunnerKind = None,
    forks: Forks = None,
    config: Configs = None,
    labels: Labels = None,
    nightly: Nightly = None,
    compare: Against = None,
    model_cache: ModelCache = None,
    image: Image = None,
    output_dir: WorkflowsDir = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Write a config, or a workflow that gates pull requests."""
    from canary.gate.init import default_branch, require_root, write
    from canary.gate.workflows import HOSTED, Answers, checked

    if path is not None:
        others = (runner, forks, config, labels, nightly, compare, model_cache, image, output_dir)
        _config(path, type_ or DEFAULT_TRAINER, force, others)
        return
    if type_ is not None:
        raise UsageError("--type is for a config", f"canary init canary.yaml --type {type_}")
    here = Path.cwd()
    hosted = runner == "hosted"
    if output_dir is None:
        require_root(here)
    known = default_branch(here)
    if known is None and not hosted:
        told = "assuming that the default branch is main; if not: git remote set-head origin --auto"
        typer.echo(told, err=True)
    given: dict[str, object] = {
        "runner": None if hosted else runner,
        "forks": forks,
        "configs": tuple(config) if config else None,
        "labels": _words(labels) if labels is not None else (HOSTED,) if hosted else None,
        "nightly": nightly,
        "compare": compare,
        "model_cache": model_cache,
        "image": image,
        "branch": known,
    }
    set_ones = {name: value for name, value in given.items() if value is not None}
    answers = Answers(**set_ones)  # type: ignore[arg-type]
    if hosted and not checked(answers).hosted:
        raise UsageError("--runner hosted and --labels name two kinds of runner", "leave one out")
    typer.echo(write(answers, here, output_dir or Path(".github/workflows"), force))


def _config(path: Path, kind: str, force: bool, others: tuple[object, ...]) -> None:
    """Write a sample config. The options of a workflow, `others`, must be left out."""
    if any(value is not None for value in others):
        raise UsageError(
            f"{path} is a config to write, and takes only --type and --force",
            "leave the path out to write the workflow",
        )
    write_sample(path, kind, force=force)
    then = f"run it with: canary run {path}"
    if kind == "exec":
        then = f"set your command in it, then: canary ab {path} --base main --exact"
    typer.echo(f"wrote {path}; {then}")


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.replace(",", " ").split() if word)
