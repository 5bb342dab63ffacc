"""`check`: is this training right, with nothing to compare it with?"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from canary.cli.options import Form, NoProgress, OutputDir, Set, Verbose, chosen_config
from canary.cli.terminal import stoppable

if TYPE_CHECKING:
    from canary.config.load import LoadedConfig


def _names_a_config(words: list[str]) -> bool:
    """Whether the words are a config, and no command."""
    if words[0].endswith((".yaml", ".yml")):
        return True
    is_command = len(words) > 1 or "--" in sys.argv or shutil.which(words[0]) is not None
    return not is_command


def _loaded(words: list[str], config: Path | None, settings: list[str]) -> LoadedConfig:
    """Return the config of what the words name: a config, or a command.

    Raises:
        UsageError: they name neither.
    """
    from canary.config.load import load_config
    from canary.errors import UsageError
    from canary.runner.exec.entry import ExecRequest, load_request

    if not words and sys.argv[-1:] == ["--"]:
        raise UsageError("no command follows --", "canary check -- python train.py")
    is_config = not words or _names_a_config(words)
    if is_config and len(words) > 1:
        message = f"canary check takes one config, not {len(words)}: {' '.join(words)}"
        raise UsageError(message, "name one config")
    if words and words[0].endswith(".py"):
        raise UsageError(f"{words[0]} is not a config", f"canary check -- python {' '.join(words)}")
    if not words or (is_config and config is None):
        return load_config(chosen_config(Path(words[0]) if words else config), settings)
    return load_request(ExecRequest(tuple(words), config=config, settings=tuple(settings)))


def check(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CONFIG | -- COMMAND]", help="A config, or your training command."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Compare a resumed training with an uninterrupted one."),
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="N", help="Compare N data workers with none."),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List all rules and exit.")] = False,
    config: Annotated[
        Path | None, typer.Option("--config", help="YAML for a command: timeout and so on.")
    ] = None,
    output_dir: OutputDir = None,
    set_: Set = None,
    form: Form = "text",
    quiet: NoProgress = False,
    verbose: Verbose = False,
) -> None:
    """Check whether a training is right, without a baseline."""
    from canary.campaign.check import Checks, checked, compared_ways
    from canary.compare.rules import answers
    from canary.report.lines import terminal_width
    from canary.report.render import render
    from canary.report.rules import answer_text, exit_code, listing, refuse_unknown
    from canary.runner.display.progress import listener_for

    if list_:
        typer.echo(listing(), nl=False)
        return
    stoppable()
    loaded = _loaded(words or [], config, set_ or [])
    refuse_unknown(loaded)
    listener, width = listener_for(sys.stderr, quiet), terminal_width(sys.stdout)
    checks = Checks(resume, workers)
    if checks.ways():
        codes = []
        for what, found in compared_ways(loaded, checks, listener, output_dir):
            typer.echo(f"{what}: {render(found, form, width)}", nl=False)
            codes.append(found.exit_code())
        raise typer.Exit(max(codes))
    record, folder = checked(loaded, listener, output_dir)
    asked = answers(record)
    typer.echo(answer_text(asked, str(folder), form, width), nl=False)
    raise typer.Exit(exit_code(asked))
