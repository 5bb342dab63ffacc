"""`check`: is this training right, with nothing to compare it with?"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from canary.cli.options import Form, NoProgress, OutputDir, Set, Verbose
from canary.cli.terminal import sayer, stoppable


def _names_a_config(words: list[str]) -> bool:
    """Whether the words are a config, and no command."""
    if words[0].endswith((".yaml", ".yml")):
        return True
    is_command = len(words) > 1 or "--" in sys.argv or shutil.which(words[0]) is not None
    return not is_command


def check(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CONFIG | -- COMMAND]", help="A config, or your training command."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="RELATION", help="Test only this relation; may be repeated."
        ),
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option(
            "--skip", metavar="RELATION", help="Leave this relation out; may be repeated."
        ),
    ] = None,
    quick: Annotated[
        bool | None,
        typer.Option(
            "--quick/--no-quick",
            help="Add at most two launches to the first; leave out compile.",
        ),
    ] = None,
    relations: Annotated[
        list[Path] | None,
        typer.Option(
            "--relations",
            metavar="FILE",
            help="A Python file with your own relation; may be repeated.",
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List all relations and exit.")] = False,
    config: Annotated[
        Path | None, typer.Option("--config", help="YAML for a command: timeout and so on.")
    ] = None,
    output_dir: OutputDir = None,
    set_: Set = None,
    form: Form = "text",
    quiet: NoProgress = False,
    verbose: Verbose = False,
) -> None:
    """Test whether a training is right, without a baseline."""
    from functools import partial

    from canary.check.answer import check_text, left_behind, listing, write_check
    from canary.check.own import with_files
    from canary.check.run import CheckRequest, run_check
    from canary.config.load import load_config
    from canary.errors import UsageError
    from canary.report.lines import terminal_width
    from canary.report.pages import leave_page
    from canary.report.render import check_format
    from canary.runner.display.progress import listener_for
    from canary.runner.exec.entry import ExecRequest, load_request

    if list_:
        typer.echo(listing(), nl=False)
        return
    check_format(form)
    stoppable()
    given = words or []
    if not given and sys.argv[-1:] == ["--"]:
        raise UsageError("no command follows --", "canary check -- python train.py")
    is_config = not given or _names_a_config(given)
    if is_config and len(given) > 1:
        message = f"canary check takes one config, not {len(given)}: {' '.join(given)}"
        raise UsageError(message, "name one config")
    if given and given[0].endswith(".py"):
        raise UsageError(f"{given[0]} is not a config", f"canary check -- python {' '.join(given)}")
    if is_config and config is None:
        loaded = load_config(Path(given[0]) if given else None, set_ or [])
    else:
        loaded = load_request(ExecRequest(tuple(given), config=config, settings=tuple(set_ or ())))
    loaded = with_files(loaded, relations or [])
    request = CheckRequest(loaded, tuple(only or ()), tuple(skip or ()), quick, output_dir)
    checked = run_check(request, listener_for(sys.stderr, quiet), sayer(quiet))
    left_behind(checked)
    told = leave_page(checked.folder, partial(write_check, checked))
    typer.echo(check_text(checked, form, terminal_width(sys.stdout)), nl=False)
    sayer(quiet)(told)
    raise typer.Exit(checked.exit_code)
