"""The picture of the stored runs, which the comment shows if it is asked to."""

from __future__ import annotations

from pathlib import Path

from canary.baseline.branch import push
from canary.baseline.history import PICTURES, drawer
from canary.errors import MachineError
from canary.gate.failsafe import Target
from canary.gate.page import LIMITS, harmless
from canary.github.confined import confined, one_line
from canary.record import jsonio
from canary.report.pages import can_draw, drawn_history
from canary.report.render import write_text


def leave_pictures(target: Target) -> None:
    """Draw the stored runs of the judged canaries anew on the baseline branch, if the comment shows
    them."""
    settings, world = target.settings, target.world
    if not (settings.chart and target.intent.writes_baseline and target.judged and can_draw()):
        return
    newest = [one.records[-1] for one in target.judged if one.records]

    def draw(root: Path) -> None:
        for folder in {drawer(root, record) for record in newest}:
            if not folder.is_dir():
                continue
            made = confined(drawn_history, folder, limits=LIMITS, failed=_not_drawn)
            for name, svg in zip(PICTURES, jsonio.loads(made or "[]"), strict=False):
                write_text(folder / name, svg)

    with harmless(world.job, _not_drawn):
        pushed = push(world.remote, draw, message="the pictures of stored runs", keep=None)
        world.job.line(f"pictures of {settings.baseline_branch} drawn, now at {pushed.sha[:9]}")


def _not_drawn(why: str) -> MachineError:
    return MachineError(f"no picture of the stored runs: {one_line(why)}")
