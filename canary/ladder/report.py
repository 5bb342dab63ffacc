"""A ladder as text, Markdown, JSON and HTML page, and in a notebook."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from canary.errors import counted
from canary.ladder.climb import tried_words
from canary.ladder.results import Ladder, LevelFound, damaged, load_result
from canary.ladder.switches import settings_words
from canary.ladder.timing import Figures, SpeedUp
from canary.record import jsonio
from canary.report.inline import Inline
from canary.report.lines import figures, wrapped
from canary.report.numbers import significant
from canary.report.pages import can_draw, leave_page
from canary.report.render import FORMATS, environment, tidy, write_text

if TYPE_CHECKING:
    from canary.report.charts.chart import Chart
    from canary.report.charts.speedups import Guard
    from canary.report.page import Choice

DOCUMENT_VERSION = 1
SHOWN: dict[str, Callable[[float], str]] = {
    "samples/s": lambda value: significant(value, 3),
    "tokens/s": "{:,.0f}".format,
    "step": lambda seconds: f"{significant(1000 * seconds, 3)} ms",
    "GPU": "{:.0f}%".format,
    "CPU (% of one core)": "{:.0f}%".format,
    "memory": "{:,.0f} MB".format,
    "GIL": "{:.1%}".format,
}
"""Headings of figures, in the order of `Figures`, and how each is written."""
HEADINGS = ("level", *SHOWN, "speed-up", "step up", "guard")
LEAST = ("GIL", "CPU (% of one core)", "GPU", "memory", "tokens/s")
"""Columns that a narrow terminal drops, in this order."""
INLINE = ("level", "samples/s", "step", "memory", "speed-up", "guard")
"""Columns in a notebook."""
INTERVALS = "In brackets: 95% intervals."
Cells = tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """A ladder in words, for all its forms."""

    title: str
    place: str
    answer: str
    rows: tuple[Cells, ...]
    """Below `HEADINGS`."""
    sections: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    """Their titles, and lines of a label and a text."""
    notes: tuple[str, ...]
    folder: str

    @property
    def legend(self) -> str:
        """What is below the table, if it has intervals."""
        return INTERVALS if any("x [" in cell for row in self.rows for cell in row) else ""


def result_text(found: Ladder, form: str, width: int | None = None) -> str:
    """Render a result as `text`, `markdown` or `json`. Lines of text fit `width`."""
    if form == "json":
        return jsonio.dumps(_document(found), indent=1) + "\n"
    report = report_of(found)
    if form == "markdown":
        template = environment().get_template("ladder.md.jinja")
        return tidy(template.render(view=report, headings=HEADINGS))
    table = figures(HEADINGS, report.rows, width, LEAST)
    text = environment().get_template("ladder.txt.jinja").render(view=report, table=table)
    return wrapped(tidy(text), width)


def leave(found: Ladder) -> str:
    """Write a result into its folder in all forms. Return a line about its page.

    Raises:
        MachineError: the files cannot be written.
    """
    for form, suffix in zip(FORMATS, ("txt", "md", "json"), strict=True):
        write_text(found.folder / f"ladder.{suffix}", result_text(found, form))
    return leave_page(found.folder, lambda path: write_text(path, result_page(found)))


def leave_unfinished(ladder: Ladder, rounds: int) -> None:
    """Write what a ladder has found so far, for those who watch it; it will have so many rounds.

    Raises:
        MachineError: the file cannot be written.
    """
    note = f"not finished: {ladder.rounds} of {rounds} rounds are timed"
    found = replace(ladder, notes=(note, *ladder.notes))
    write_text(found.folder / "ladder.json", result_text(found, "json"))


def write_result(folder: Path, path: Path) -> None:
    """Write the HTML page of the result in a folder.

    Raises:
        RecordError: the result cannot be read.
    """
    found = load_result(folder)
    try:
        text = result_page(found)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise damaged(folder) from error
    write_text(path, text)


def result_page(found: Ladder) -> str:
    """Return the HTML page of a result. Needs the extra `report`."""
    from canary.report.page import Page, page_text

    report = report_of(found)
    lines = [f"{title}: {what}: {text}" for title, each in report.sections for what, text in each]
    page = Page(
        title=report.title,
        first_line=f"{report.title}: {report.answer}",
        subtitle=report.place,
        table="Levels",
        headings=HEADINGS,
        checks=report.rows,
        legend=INTERVALS,
        choices=tuple(_choices(found)),
        notes=(*report.notes, *lines),
    )
    return page_text(page, _charts(found))


def _choices(ladder: Ladder) -> Iterator[Choice]:
    """Yield the figures of each level that ran, beside the baseline's."""
    from canary.report.page import Choice

    baseline, *above = ladder.levels
    for one in above:
        if one.figures is not None:
            columns = (SHOWN, _figures(baseline.figures), _figures(one.figures))
            headings = ("figure", baseline.level, one.level)
            yield Choice(one.level, headings, tuple(zip(*columns, strict=True)))


def inline(found: Ladder) -> Inline:
    """Return what a notebook shows of a result."""
    report = report_of(found)
    places = [place for place, name in enumerate(HEADINGS) if name in INLINE]
    on = [(one.level.capitalize(), ", ".join(one.switched)) for one in found.levels if one.switched]
    switched = "; ".join(f"{level} switches on {names}" for level, names in on)
    return Inline(
        title=report.title,
        line=report.answer,
        headings=tuple(HEADINGS[place] for place in places),
        rows=tuple(tuple(row[place] for place in places) for row in report.rows),
        more=". ".join((*filter(None, (switched,)), *report.notes)),
        charts=_charts(found) if can_draw() else (),
    )


def _charts(ladder: Ladder) -> tuple[Chart, ...]:
    from canary.report.charts.speedups import Speed, speed_up_charts

    baseline, *above = ladder.levels
    speeds = [Speed(baseline.level, 1.0, None, None, "reference")]
    for one in above:
        if gain := one.cumulative:
            speeds.append(Speed(one.level, gain.ratio, gain.low, gain.high, _guard(one)))
    return tuple(speed_up_charts("Speed-up of each level", _answer(ladder), speeds))


def _document(found: Ladder) -> dict[str, Any]:
    """Return the JSON report, with everything that was found."""
    report, plain = report_of(found), asdict(found) | {"folder": str(found.folder)}
    for shown, level in zip(plain["levels"], found.levels, strict=True):
        shown["unsafe"] = level.unsafe
        for entry, tried in zip(shown["tried"], level.tried, strict=True):
            entry["words"] = tried_words(tried)
    first = {"schema_version": DOCUMENT_VERSION, "passed": found.passed, "answer": report.answer}
    return first | plain


def report_of(ladder: Ladder) -> Report:
    """Put a ladder into words."""
    rounds = counted(ladder.rounds, "round")
    place = f"{ladder.machine.words}; {rounds}, each launch in a separate process; {ladder.created}"
    return Report(
        title=f"Ladder of {ladder.headline}",
        place=place,
        answer=_answer(ladder),
        rows=tuple(
            (
                one.level,
                *_figures(one.figures),
                speed_words(one.cumulative),
                speed_words(one.step_up),
                "-" if one.guarded is None else _guard(one),
            )
            for one in ladder.levels
        ),
        sections=tuple(
            (level.level, tuple(_lines(level, below, ladder.levels)))
            for below, level in itertools.pairwise(ladder.levels)
        ),
        notes=ladder.notes,
        folder=str(ladder.folder),
    )


def _answer(ladder: Ladder) -> str:
    """Return the headline: what is unsafe, and the speed-up of the highest safe level."""
    gain = _gain(ladder)
    unsafe = [one.level for one in ladder.levels if one.unsafe]
    if unsafe:
        learn = "does not learn" if len(unsafe) == 1 else "do not learn"
        return f"UNSAFE: {', '.join(unsafe)} {learn} the same as the baseline. {gain}"
    if unguarded := [one.level for one in ladder.levels if not one.safe]:
        return f"Not guarded: {', '.join(unguarded)}. {gain}"
    if unmeasured := [one.level for one in ladder.levels if one.problem]:
        return f"No speed-up measured: {', '.join(unmeasured)}. {gain}"
    guards = [one.guarded.verdicts for one in ladder.levels if one.guarded is not None]
    signals = min(one.signals for each in guards for one in each)
    steps = min(one.steps for each in guards for one in each)
    holds = "guard holds" if len(guards) == 1 else "guards hold"
    return f"{gain} The {holds} over {signals} signals and {steps} steps."


def _gain(ladder: Ladder) -> str:
    top = ladder.top
    if top is None or top.cumulative is None:
        measured = [one for one in ladder.levels if one.cumulative]
        if any(one.safe for one in measured):
            return "No level switches anything on here: all levels equal the baseline."
        return f"No{' safe' if measured else ''} level has a measured speed-up."
    speed = top.cumulative
    gain = f"{top.level.capitalize()} runs {speed_words(speed)} as fast as the baseline"
    if speed.low is None:
        return f"{gain} (one launch each, no interval)."
    return f"{gain}: no sure gain, the interval includes 1." if speed.open else f"{gain}."


def _guard(level: LevelFound) -> Guard:
    return "holds" if level.safe else "UNSAFE" if level.unsafe else "not run"


def _figures(found: Figures | None) -> Cells:
    """Return the cells of SHOWN."""
    values = (None,) * len(SHOWN) if found is None else astuple(found)
    forms = zip(values, SHOWN.values(), strict=True)
    return tuple("-" if value is None else form(value) for value, form in forms)


def speed_words(speed: SpeedUp | None) -> str:
    """Return a ratio with its interval."""
    if speed is None:
        return "-"
    ends = "" if speed.low is None else f" [{speed.low:.2f}, {speed.high:.2f}]"
    return f"{speed.ratio:.2f}x{ends}"


def _lines(
    level: LevelFound, below: LevelFound, levels: Sequence[LevelFound]
) -> list[tuple[str, str]]:
    """Return the lines about one level; `below`: the level before it in the report."""
    lines = []
    start = next((one for one in levels if one.level == level.step_over), below)
    if start is not below:
        between = levels[levels.index(start) + 1 : levels.index(level)]
        names = " and ".join(one.level for one in between)
        what = f"{start.level}, the last safe level; includes switches of {names} that are still on"
        lines.append(("step up from", what))
    if start.bottleneck:
        lines.append((f"bottleneck of {start.level}", start.bottleneck))
    if level.problem:
        lines.append(("no speed-up", level.problem))
    for name, ratio in (("speed-up", level.cumulative), ("step up", level.step_up)):
        if ratio is not None and ratio.open:
            lines.append((name, "no sure gain: the interval includes 1"))
    known = below.settings.items()
    changed = dict(one for one in level.settings.items() if one not in known)
    lines.append(("switched on", ", ".join(level.switched) or "nothing"))
    lines.append(("settings", settings_words(changed) or "same as the level below"))
    lines += [("tried", tried_words(one)) for one in level.tried]
    lines += [("skipped", f"{one.switch}: {one.reason}") for one in level.skipped]
    if guarded := level.guarded:
        both = ((guarded.exact, "guard in float32"), (guarded.wide, "guard as it is"))
        lines += [(words, f"{one.state}: {one.words}") for one, words in both if one is not None]
        if guarded.broken:
            none = "no switch of this level breaks the guard alone"
            lines.append(("cause", ", ".join(guarded.blamed) or none))
    return lines
