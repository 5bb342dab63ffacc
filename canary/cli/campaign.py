"""The verbs that train many times: `ab`, `bisect`, `calibrate`, `demo`, `ladder`, `matrix`."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from canary.cli.options import (
    BRANCH,
    Accept,
    AllChecks,
    Branch,
    Config,
    Form,
    NoProgress,
    OutputDir,
    RemoteName,
    Set,
    Strict,
    Verbose,
)
from canary.cli.terminal import sayer, stoppable
from canary.config.output import OUTPUT_DIR
from canary.errors import EXIT_ERROR, EXIT_OK, EXIT_REGRESSION

BaseConfig = Annotated[Path | None, typer.Argument(help="YAML file, read from each commit.")]
HeadConfig = Annotated[
    Path | None, typer.Argument(help="Config of the head; CONFIG is then that of the base.")
]
Base = Annotated[str | None, typer.Option("--base", metavar="REF", help="Commit to compare with.")]
Head = Annotated[
    str | None, typer.Option("--head", metavar="REF", help="Commit to judge [working tree].")
]
Pairs = Annotated[
    str, typer.Option("--pairs", metavar="auto|N", help="Pairs; auto stops after 3, 5 or 8.")
]
Budget = Annotated[
    float | None,
    typer.Option("--budget", metavar="MINUTES", help="Start no pair that would exceed it."),
]
Setup = Annotated[
    str | None,
    typer.Option(
        "--setup",
        metavar="COMMAND",
        help="Command that prepares each checkout: installs packages, links data.",
    ),
]
Exact = Annotated[
    bool,
    typer.Option("--exact", help="End each training after its look: exact signals without speed."),
]
SidesDir = Annotated[
    Path | None, typer.Option("-o", "--output-dir", help="Folder for the runs of both sides.")
]


def ab(
    config: BaseConfig = None,
    head_config: HeadConfig = None,
    base: Base = None,
    head: Head = None,
    pairs: Pairs = "auto",
    exact: Exact = False,
    budget: Budget = None,
    setup: Setup = None,
    output_dir: SidesDir = None,
    set_: Set = None,
    form: Form = "text",
    strict: Strict = False,
    accept: Accept = None,
    verbose: AllChecks = False,
) -> None:
    """Run two commits or configs alternately and compare them."""
    from canary.campaign.ab import AbRequest, run_ab
    from canary.campaign.side import undisturbed
    from canary.report.pages import compared_in, leave_report
    from canary.report.render import deliver, written

    stoppable()
    with contextlib.ExitStack() as around:
        found, folder = run_ab(
            AbRequest(
                config=config,
                base=base,
                head=head,
                head_config=head_config,
                pairs=pairs,
                budget_minutes=budget,
                setup=setup,
                trusts_folder=True,
                exact=exact,
                output_dir=output_dir,
                settings=tuple(set_ or ()),
                accept=accept,
            ),
            sayer(quiet=False),
            # A verdict is delivered, even if this process is asked to end now.
            lambda: around.enter_context(undisturbed()),
        )
        written(found, folder)
        told = leave_report(compared_in(folder), folder)
        deliver(found, form, every=verbose)
        sayer(quiet=False)(told)
        raise typer.Exit(found.exit_code(strict))


Good = Annotated[
    str | None, typer.Option("--good", metavar="REF", help="Commit where it was good.")
]
Bad = Annotated[str, typer.Option("--bad", metavar="REF", help="Commit where it is bad.")]
TwoLists = Annotated[
    tuple[Path, Path] | None,
    typer.Option(
        "--packages",
        metavar="GOOD BAD",
        help="Search packages: two records, or lists with ==, as pip freeze prints them.",
    ),
]
FollowedCheck = Annotated[
    str | None,
    typer.Option("--check", metavar="NAME", help="Check to follow, or crash [the first red one]."),
]
BisectDir = Annotated[
    Path | None,
    typer.Option("-o", "--output-dir", help="Folder of this bisect, also to continue it."),
]


def bisect(
    config: BaseConfig = None,
    good: Good = None,
    bad: Bad = "HEAD",
    packages: TwoLists = None,
    check: FollowedCheck = None,
    setup: Setup = None,
    output_dir: BisectDir = None,
    set_: Set = None,
    form: Form = "text",
    quiet: NoProgress = False,
    verbose: Verbose = False,
) -> None:
    """Find the commit, or the package, that made a canary worse."""
    import shlex

    from canary.bisect.answer import answer_text
    from canary.bisect.bisect import Request, run_bisect
    from canary.campaign.demo import typed_as
    from canary.errors import UsageError
    from canary.report.lines import terminal_width

    stoppable()
    if config is None:
        raise UsageError("bisect needs a config", "canary bisect CONFIG --good REF")
    request = Request(
        config=config,
        good=good,
        bad=bad,
        packages=packages,
        check=check,
        setup=setup,
        settings=tuple(set_ or ()),
        output_dir=output_dir,
        typed=f"{typed_as(sys.argv[0])} {shlex.join(sys.argv[1:])}",
    )
    answered = run_bisect(request, sayer(quiet))
    typer.echo(answer_text(answered, form, terminal_width(sys.stdout)), nl=False)
    sayer(quiet)(answered.page)
    raise typer.Exit(answered.exit_code)


def calibrate(
    config: Config = None,
    runs: Annotated[int, typer.Option("-n", "--runs", help="Number of equal runs.")] = 10,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File for the noise model.")
    ] = None,
    save_to: Annotated[
        Path | None,
        typer.Option("--save-to", metavar="HISTORY", help="Also save it in this history."),
    ] = None,
    remote: RemoteName = None,
    branch: Branch = BRANCH,
    runs_dir: Annotated[
        Path | None, typer.Option("--output-dir", help="Folder for run folders.")
    ] = None,
    set_: Set = None,
    quiet: NoProgress = False,
    verbose: Verbose = False,
) -> None:
    """Repeat one canary and measure how much equal runs vary."""
    from canary.campaign.calibrate import (
        calibrate,
        calibration_text,
        keep,
        noise_branch,
        push_noise,
        require_writable,
    )
    from canary.campaign.judging import noise_file_of
    from canary.config.load import load_config

    stoppable()
    loaded = load_config(config, set_ or [])
    place = noise_branch(remote, branch)
    if place is not None:
        require_writable(*place)
    made, records = calibrate(loaded, runs, runs_dir, sayer(quiet))
    if output is None and save_to is None:
        output = Path(noise_file_of(loaded.config.name))
    written_to = keep(made, output, save_to, records[-1])
    typer.echo(calibration_text(made))
    use = "" if save_to else f"; canary compare takes it with --noise {output}"
    typer.echo(f"\nwrote {written_to}{use}")
    if place is not None:
        typer.echo(push_noise(*place, made.model, records[-1]))


def demo(
    output_dir: Annotated[
        Path, typer.Option("-o", "--output-dir", help="Folder for run folders.")
    ] = Path(OUTPUT_DIR),
    verbose: AllChecks = False,
) -> None:
    """Judge a harmless and a broken pull request. It takes about 100 s on two quiet cores."""
    from canary.campaign.demo import FAULT, demo_text, run_demo, typed_as
    from canary.report.lines import terminal_width
    from canary.report.pages import compared_in, leave_report
    from canary.report.render import answer, render, written

    stoppable()
    shown = run_demo(output_dir, sayer(False))
    written(shown.healthy, shown.folder / "head")
    written(shown.faulty, shown.folder / FAULT)
    fault = shown.folder / FAULT
    told = leave_report(compared_in(fault), fault)
    width = terminal_width(sys.stdout)
    if verbose:
        faulty = render(shown.faulty, "text", width, every=True)
    else:
        faulty = answer(shown.faulty, width)
    typer.echo(demo_text(shown, faulty, typed_as(sys.argv[0]), width))
    typer.echo(f"{told[0].upper()}{told[1:]}")
    raise typer.Exit(EXIT_OK if shown.as_promised else EXIT_ERROR)


def ladder(
    config: Config = None,
    levels: Annotated[
        str | None,
        typer.Option(
            "--levels", metavar="NAMES", help="Some of baseline,basic,advanced,optimal [all]."
        ),
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", metavar="N", help="Launches per level.")] = 3,
    output_dir: OutputDir = None,
    set_: Set = None,
    form: Form = "text",
    quiet: NoProgress = False,
    verbose: Verbose = False,
) -> None:
    """Time one job at four speed levels."""
    from canary.ladder.report import leave, result_text
    from canary.ladder.run import LadderRequest, run
    from canary.report.lines import terminal_width

    stoppable()
    request = LadderRequest(config, levels, rounds, tuple(set_ or ()), output_dir)
    found = run(request, sayer(quiet))
    told = leave(found)
    typer.echo(result_text(found, form, terminal_width(sys.stdout)), nl=False)
    sayer(quiet)(told)
    raise typer.Exit(EXIT_OK if found.passed else EXIT_REGRESSION)


def matrix(
    file: Annotated[Path, typer.Argument(metavar="MATRIX", help="YAML file with the cells.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would run, and start nothing.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="CELL", help="Run this cell alone; may be repeated."),
    ] = None,
    output_dir: OutputDir = None,
    form: Form = "text",
    quiet: NoProgress = False,
    verbose: Verbose = False,
) -> None:
    """Run many canaries, each compared with its own history."""
    from canary.matrix.answer import View, answer_of, answer_text, write_answer
    from canary.matrix.running import load, plan_lines, run
    from canary.report.lines import terminal_width

    stoppable()
    loaded = load(file, output_dir, only or ())
    if dry_run:
        typer.echo("\n".join(plan_lines(loaded.cells)))
        return
    say = sayer(quiet)
    for line in (*plan_lines(loaded.cells), f"folder: {loaded.folder}"):
        say(line)
    try:
        entries = run(loaded, View(say, time.monotonic).told)
    except KeyboardInterrupt:
        say(f"to go on, start the same command again with -o {loaded.folder}")
        raise
    answer = answer_of(entries, loaded.document.name)
    if not only:
        write_answer(answer, loaded.folder)
    width = terminal_width(sys.stdout)
    typer.echo(answer_text(answer, form, loaded.folder, width), nl=False)
    raise typer.Exit(answer.exit_code)
