"""`canary bisect --packages`: which package made it worse, and which version of it.

With commits too, the four corners say first whether the code did it, or the packages.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from canary.bisect.bench import require_plain_python
from canary.bisect.bisect import DIGITS
from canary.bisect.journal import digest
from canary.bisect.packages.answer import PackagesAnswered, packages_left_behind
from canary.bisect.packages.axes import Axes, both_axes
from canary.bisect.packages.changes import Changes, changes_between
from canary.bisect.packages.installer import installer_for
from canary.bisect.packages.pins import Pins, read_pins
from canary.bisect.packages.recorded_config import recorded_config
from canary.bisect.packages.request import PackagesRequest
from canary.bisect.packages.search import PackageSearch
from canary.bisect.packages.stages import Stages
from canary.campaign.side import Side
from canary.config.load import load_config
from canary.config.output import OUTPUT_DIR
from canary.config.samples import shipped
from canary.errors import MachineError, UsageError
from canary.record import jsonio
from canary.runner.display.progress import CampaignPanel
from canary.runner.warm import warm_starts

MOST_NAMED = 6
"""Changed packages in the first lines."""


@warm_starts()
def run_packages(
    request: PackagesRequest, say: Callable[[str], None], panel: CampaignPanel | None = None
) -> PackagesAnswered:
    """Find the package and the version that made it worse.

    Raises:
        UsageError: the request, a list or the config is invalid, or nothing is worse.
        MachineError: an end cannot be installed or cannot run.
    """
    good, bad = read_pins(request.good), read_pins(request.bad)
    changes = changes_between(good, bad)
    if request.commits:
        request = _with_commits(request, good, bad)
    here = Path.cwd().resolve()
    if request.config is None:
        text = recorded_config(good, bad)
        folder = _folder(request, changes, text, here)
        config = _written(folder, text)
    else:
        config = _config_of(request, here)
        folder = _folder(request, changes, str(config), here)
    loaded = load_config(config, request.settings).config
    require_plain_python(loaded)
    with contextlib.ExitStack() as around:
        stages = _stages(request, folder, here, config, say, panel, around)
        for note in changes.notes:
            stages.note(note)
        say(f"{len(changes.changed)} packages differ: {_named(changes)}")
        say(f"records: {folder}; if interrupted, the same command continues")
        tools = Path(around.enter_context(tempfile.TemporaryDirectory(prefix="canary-tools-")))
        search = PackageSearch(
            stages,
            changes,
            installer_for(request.find_links, os.environ, tools),
            Side("", "", config, here, Path(sys.executable), dict(os.environ), folder),
            loaded.training_type in ("exec", "custom"),
            [],
        )
        search.code = replace(search.code, settings=request.settings)
        axes = Axes()
        try:
            if request.commits:
                axes = both_axes(request, search, config)
            else:
                search.run()
        except KeyboardInterrupt:
            say(f"to continue: {request.typed}")
            raise
        answered = PackagesAnswered(
            folder,
            tuple(stages.done),
            tuple(search.culprits),
            axes.commit,
            search.others,
            tuple(stages.notes),
            bool(search.culprits) == axes.packages,
            axes.together or any(culprit.together for culprit in search.culprits),
        )
        packages_left_behind(answered)
        return answered


def _with_commits(request: PackagesRequest, good: Pins, bad: Pins) -> PackagesRequest:
    """Return the request with both commits: those that were named, or those of the records.

    Raises:
        UsageError: an end has no commit.
    """
    commits = []
    for named, pins, option in (
        (request.good_commit, good, "--good"),
        (request.bad_commit, bad, "--bad"),
    ):
        sha = pins.record.git.get("sha") if pins.record is not None else None
        if named is None and sha is None and option == "--bad" and request.good_commit:
            named = "HEAD"
        if named is None and sha is None:
            raise UsageError(f"{pins.source} names no commit", f"name it with {option} REF")
        commits.append(named or sha)
    return replace(request, good_commit=commits[0], bad_commit=commits[1])


def _stages(
    request: PackagesRequest,
    folder: Path,
    here: Path,
    config: Path,
    say: Callable[[str], None],
    panel: CampaignPanel | None,
    around: contextlib.ExitStack,
) -> Stages:
    asked = {
        "--check": request.wish.check or "",
        "--set": jsonio.dumps(request.settings),
        "config": digest(config.read_text("utf-8", "replace") if config.is_file() else str(config)),
    }
    names = {"good": str(request.good), "bad": str(request.bad)}
    return Stages(folder, here, request.wish, names, config, asked, say, panel, around)


def _named(changes: Changes) -> str:
    shown = ", ".join(str(change) for change in changes.changed[:MOST_NAMED])
    more = len(changes.changed) - MOST_NAMED
    return f"{shown} and {more} more" if more > 0 else shown


def _config_of(request: PackagesRequest, here: Path) -> Path:
    assert request.config is not None
    given = (here / request.config).resolve()
    if given.is_file():
        return given
    if shipped(request.config) is not None:
        return request.config
    raise UsageError(f"no config at {request.config}", "write one with: canary init-config")


def _folder(request: PackagesRequest, changes: Changes, config: str, here: Path) -> Path:
    """Return the named output folder, or the one that the same arguments had before."""
    if request.output_dir is not None:
        return (here / request.output_dir).absolute()
    arguments = [request.wish.check or "", *request.settings, config]
    arguments += [request.good_commit or "", request.bad_commit or ""]
    same = digest([*arguments, *map(str, changes.changed)])[:DIGITS]
    root = (here / OUTPUT_DIR).absolute()
    earlier = sorted(root.glob(f"bisect-*-{same}"))
    return earlier[-1] if earlier else root / f"bisect-{datetime.now(UTC):%Y%m%d-%H%M%S}-{same}"


def _written(folder: Path, text: str) -> Path:
    """Write the config of a record into the output folder."""
    path = folder / "config.yaml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        jsonio.replace_file(path, text)
    except OSError as error:
        raise MachineError(
            f"cannot write {path}: {error.strerror or error}", "choose another folder with -o"
        ) from error
    return path
