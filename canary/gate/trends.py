"""On the default branch: say what began where in the history, once per change.

It happens after the runs are stored and the answer is out. A separate process without the token
reads the records and finds the changes. Whatever fails here costs this part alone.
"""

from __future__ import annotations

import contextlib
import importlib.util
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from canary.baseline import branch
from canary.baseline.ancestry import Ancestry, ancestry_of
from canary.baseline.history import drawer
from canary.compare.bisect_cost import Effect
from canary.errors import CanaryError, MachineError
from canary.gate.failsafe import Target
from canary.gate.grounds import Judged
from canary.gate.page import LIMITS, harmless
from canary.github.client import Refused
from canary.github.confined import confined, one_line
from canary.github.sticky import comment_author
from canary.github.trend_issue import DIGITS, Finding, Issues, Wanted, key_of
from canary.report.bisect_hint import Hint
from canary.report.escape import markdown_cell, markdown_code, plain_line
from canary.report.trend_hint import step_hint
from canary.report.trend_news import FollowedSeries, News, Noted, news_text
from canary.report.trend_words import sentence

NEEDED = ("numpy", "scipy", "ruptures")
TITLE = "### Since when"
LONGEST_TITLE = 200
KEPT = (
    "<sub>RLHF Canary keeps this issue up to date, and closes it when the level returns. If you "
    "close it, it stays closed until another change.</sub>"
)


def can_analyse() -> bool:
    """Return whether the packages that find changes are installed."""
    return all(importlib.util.find_spec(name) is not None for name in NEEDED)


def leave_trends(target: Target) -> None:
    """Say in the step's summary what these runs are the first to show. Keep the issues, where they
    are asked for."""
    if not (target.intent.writes_baseline and target.stored):
        return
    stored = [one for one in target.judged if _run_ids(one)]
    if not stored:
        return
    job = target.world.job
    if not can_analyse():
        job.say("notice", str(_not_analysed("the packages that find changes are not installed")))
        return
    with harmless(job, _not_analysed):
        found = _Found(target)
        with tempfile.TemporaryDirectory(prefix="canary-trends-") as scratch:
            root = Path(scratch) / "baseline"
            branch.pull(target.world.remote, root)
            for one in stored:
                with harmless(job, _not_analysed):
                    found.news.append((one, _news(root, one)))
        _summarise(target, found)
        if target.settings.trend_issue:
            _keep_issues(target, found)


def _not_analysed(why: str) -> MachineError:
    return MachineError(f"the history was not analysed: {one_line(why)}")


def _no_issue(why: str) -> MachineError:
    return MachineError(f"no issue was written: {one_line(why)}")


def _run_ids(judged: Judged) -> list[str]:
    return [record.run_id for record in judged.records if record.status == "completed"]


def _news(root: Path, judged: Judged) -> News:
    """Return what a canary's history shows, as it is with this job's runs.

    Raises:
        CanaryError: it cannot be analysed.
    """
    folder = drawer(root, judged.records[-1])
    text = confined(news_text, folder, _run_ids(judged), limits=LIMITS, failed=_not_analysed)
    try:
        return News.model_validate_json(text)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise _not_analysed(f"its result is not valid: {where}") from error


@dataclass
class _Found:
    """The news of each canary, and the commits of the default branch."""

    target: Target
    news: list[tuple[Judged, News]] = field(default_factory=list)
    _ancestry: list[Ancestry | None] = field(default_factory=list)

    def hint(self, judged: Judged, news: News, series: FollowedSeries, one: Noted) -> Hint | None:
        """Return how to find the commit of a step for the worse; None if it is one commit."""
        if one.kind != "step" or not one.worse or one.within[0] < 1:
            return None
        last = min(one.within[1], len(series.commits) - 1)
        good, bad = series.commits[one.within[0] - 1], series.commits[last]
        effect = Effect(one.change, one.noise)
        return step_hint(
            judged.answer.config,
            (good, bad),
            self._between,
            news.seconds,
            effect,
            series.metric,
            judged.settings,
        )

    def _between(self, good: str, bad: str) -> int | None:
        """Return how many commits lie between two; None if nobody knows."""
        if not self._ancestry:
            head = self.target.intent.head_sha
            self._ancestry.append(None)
            with contextlib.suppress(CanaryError):
                self._ancestry[0] = ancestry_of(self.target.world.remote, head, head)
        known = self._ancestry[0]
        far, near = (known.distance(sha) if known else None for sha in (good, bad))
        return far - near if far is not None and near is not None and far > near else None


def _summarise(target: Target, found: _Found) -> None:
    """Add the new changes to the summary and to the log, each with the command that finds it."""
    job = target.world.job
    lines = []
    for judged, news in found.news:
        named = f"{judged.answer.canary} on {news.machine}"
        if not news.new:
            job.line(f"{named}: this run shows no new change in its history")
        for series in news.series:
            for one in (one for one in series.noted if one.new):
                job.say("warning" if one.worse else "notice", f"{named}: {one.sentence}")
                hint = found.hint(judged, news, series, one)
                where = f"{markdown_code(judged.answer.canary)} on {markdown_code(news.machine)}"
                lines.append(f"- {where}: {markdown_cell(one.sentence)}{_hint_words(hint)}")
    if lines:
        job.add_summary("\n".join([TITLE, "", *lines]))


def _hint_words(hint: Hint | None) -> str:
    if hint is None:
        return ""
    about = f" ({markdown_cell(hint.about)})" if hint.about else ""
    return f" {hint.label}: {markdown_code(hint.command)}{about}"


def _keep_issues(target: Target, found: _Found) -> None:
    """Keep one issue per canary, machine and metric."""
    world, settings = target.world, target.settings
    with harmless(world.job, _no_issue):
        login = comment_author(world.hub, settings.author)
        issues = Issues(world.hub, target.repository, login)
        for judged, news in found.news:
            for series in news.series:
                try:
                    done = issues.keep(_wanted(found, judged, news, series))
                except Refused as refused:
                    remedy = "give the job `issues: write`"
                    world.job.say("notice", f"no issue was written: {refused} ({remedy})")
                    return
                if done:
                    world.job.line(f"{judged.answer.canary}, {series.title}: {done}")


def _wanted(found: _Found, judged: Judged, news: News, series: FollowedSeries) -> Wanted:
    canary = judged.answer.canary
    held = sorted((one for one in series.noted if series.is_open(one)), key=lambda one: -one.place)
    name = sentence(series.title).removesuffix(".")
    since = f" since {held[0].commit[:9]}" if held and held[0].commit else ""
    title = plain_line(f"{canary} on {news.machine}: {series.title} got worse{since}")
    where = f"{markdown_code(canary)} on {markdown_code(news.machine)}"
    lines = [
        f"- {markdown_cell(one.sentence)}{_hint_words(found.hint(judged, news, series, one))}"
        for one in held
    ]
    lead = f"**{markdown_cell(name)}** of {where} got worse, and the level holds."
    return Wanted(
        key=key_of(news.canary, news.machine, series.metric),
        title=title[:LONGEST_TITLE],
        body="\n".join([lead, "", *lines, "", KEPT]),
        open=tuple(
            Finding(one.commit, _nearby(series, one), markdown_cell(one.sentence)) for one in held
        ),
        ended=lambda told: _over(series, told),
    )


def _nearby(series: FollowedSeries, one: Noted) -> frozenset[str]:
    """Return the commits that an earlier analysis may have named for the same change."""
    return frozenset(
        sha[:DIGITS] for place, sha in enumerate(series.commits) if sha and one.is_at(place)
    )


def _over(series: FollowedSeries, told: Sequence[str]) -> str:
    """Return why changes that an issue told are over; empty if nothing shows that they are."""
    for commit in reversed(told):
        places = [n for n, sha in enumerate(series.commits) if sha.startswith(commit)]
        first = places[0] if places else -1
        accepted = next((place for place in series.accepted if place >= max(first, 0)), None)
        if accepted is not None:
            sha = markdown_code(series.commits[accepted][:9])
            return f"Someone accepted the level of commit {sha}. A new period begins there."
        better = [
            one
            for one in series.noted
            if one.kind == "step" and one.standing == "confirmed" and not one.worse
        ]
        after = [one for one in better if one.place > first]
        if after:
            return f"The level returned. {markdown_cell(after[-1].sentence)}"
    return ""
