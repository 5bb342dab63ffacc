"""A ladder or an advice as text, Markdown, JSON and HTML page, and in a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from canary.ladder.climb import tried_words
from canary.ladder.guard import Guarded
from canary.ladder.results import Advice, Advised, Found, Ladder, LevelFound, damaged, load_result
from canary.ladder.switches import Settings, settings_words
from canary.ladder.timing import Figures, SpeedUp
from canary.record import jsonio
from canary.report.inline import Inline
from canary.report.lines import figures, wrapped
from canary.report.numbers import significant
from canary.report.pages import can_draw, leave_page
from canary.report.render import FORMATS, check_format, environment, tidy, write_text

if TYPE_CHECKING:
    from canary.report.charts.chart import Chart
    from canary.report.page import Choice

DOCUMENT_VERSION = 1
SHOWN = ("samples/s", "tokens/s", "step", "GPU", "CPU (% of one core)", "memory", "GIL")
"""Headings of figures."""
OF_LADDER = ("level", *SHOWN, "speed-up", "step up", "guard")
OF_ADVICE = ("switch", "settings", "gain", "guard", "advised")
LEAST = ("GIL", "CPU (% of one core)", "GPU", "memory", "tokens/s")
"""Columns that a narrow terminal drops, in this order."""
INLINE = ("level", "samples/s", "step", "memory", "speed-up", *OF_ADVICE)
"""Columns in a notebook."""
INTERVALS = "In brackets: 95% intervals."
Cells = tuple[str, ...]
Speeds = tuple[tuple[str, SpeedUp, str], ...]
"""What is in the chart: name, speed-up and guard."""


@dataclass(frozen=True)
class Report:
    """A ladder or an advice in words, for all its forms."""

    title: str
    place: str
    answer: str
    table: str
    headings: Cells
    rows: tuple[Cells, ...]
    more: str
    """A line below the table."""
    yaml: str
    """The lines to paste; empty if nothing is recommended."""
    sections: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    """Their titles, and lines of a label and a text."""
    notes: tuple[str, ...]
    folder: str
    chart: str
    """Its title."""
    speeds: Speeds

    @property
    def legend(self) -> str:
        """What is below the table, if it has intervals."""
        return INTERVALS if any("x [" in cell for row in self.rows for cell in row) else ""


def report_of(found: Found) -> Report:
    """Put a ladder or an advice into words."""
    return _of_ladder(found) if isinstance(found, Ladder) else _of_advice(found)


def result_text(found: Found, form: str, width: int | None = None) -> str:
    """Render a result as `text`, `markdown` or `json`. Lines of text fit `width`.

    Raises:
        UsageError: unknown format.
    """
    check_format(form)
    if form == "json":
        return jsonio.dumps(_document(found), indent=1) + "\n"
    report = report_of(found)
    if form == "markdown":
        return tidy(environment().get_template("ladder.md.jinja").render(view=report))
    table = figures(report.headings, report.rows, width, LEAST)
    text = environment().get_template("ladder.txt.jinja").render(view=report, table=table)
    return wrapped(tidy(text), width)


def leave(found: Found) -> str:
    """Write a result into its folder in all forms. Return a line about its page.

    Raises:
        MachineError: the files cannot be written.
    """
    name = "ladder" if isinstance(found, Ladder) else "advice"
    for form, suffix in zip(FORMATS, ("txt", "md", "json"), strict=True):
        write_text(found.folder / f"{name}.{suffix}", result_text(found, form))
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


def result_page(found: Found) -> str:
    """Return the HTML page of a result. Needs the extra `report`."""
    from canary.report.page import Page, page_text

    report = report_of(found)
    lines = [f"{title}: {what}: {text}" for title, each in report.sections for what, text in each]
    page = Page(
        title=report.title,
        first_line=f"{report.title}: {report.answer}",
        subtitle=report.place,
        table=report.table,
        headings=report.headings,
        checks=report.rows,
        legend=INTERVALS,
        choices=tuple(_choices(found)) if isinstance(found, Ladder) else (),
        notes=(*filter(None, (report.more,)), *report.notes, *lines),
    )
    return page_text(page, _charts(report))


def _choices(ladder: Ladder) -> Iterator[Choice]:
    """Yield the figures of each level that ran, beside the baseline's."""
    from canary.report.page import Choice

    baseline, *above = ladder.levels
    for one in above:
        if one.figures is not None:
            columns = (SHOWN, _figures(baseline.figures), _figures(one.figures))
            headings = ("figure", baseline.level, one.level)
            yield Choice(one.level, headings, tuple(zip(*columns, strict=True)))


def inline(found: Found) -> Inline:
    """Return what a notebook shows of a result."""
    report = report_of(found)
    places = [place for place, name in enumerate(report.headings) if name in INLINE]
    levels = found.levels if isinstance(found, Ladder) else ()
    on = [(one.level.capitalize(), ", ".join(one.switched)) for one in levels if one.switched]
    switched = "; ".join(f"{level} switches on {names}" for level, names in on)
    return Inline(
        title=report.title,
        line=report.answer,
        headings=tuple(report.headings[place] for place in places),
        rows=tuple(tuple(row[place] for place in places) for row in report.rows),
        more=". ".join((*filter(None, (switched,)), *report.notes)),
        charts=_charts(report) if can_draw() else (),
    )


def _charts(report: Report) -> tuple[Chart, ...]:
    from canary.report.charts.speedups import Speed, speed_up_charts

    speeds = [
        Speed(name, one.ratio, one.low, one.high, guard)  # type: ignore[arg-type]
        for name, one, guard in report.speeds
    ]
    return tuple(speed_up_charts(report.chart, report.answer, speeds))


def _document(found: Found) -> dict[str, Any]:
    """Return the JSON report, with everything that was found."""
    report, plain = report_of(found), asdict(found) | {"folder": str(found.folder)}
    if isinstance(found, Ladder):
        for shown, level in zip(plain["levels"], found.levels, strict=True):
            shown["unsafe"] = level.unsafe
            for entry, tried in zip(shown["tried"], level.tried, strict=True):
                entry["words"] = tried_words(tried)
    else:
        plain["yaml"] = report.yaml
    first = {"schema_version": DOCUMENT_VERSION, "passed": found.passed, "answer": report.answer}
    return first | plain


def _place(found: Found) -> str:
    rounds = f"{found.rounds} round{'' if found.rounds == 1 else 's'}"
    return f"{found.machine.words}; {rounds}, each launch in a separate process; {found.created}"


def _of_ladder(ladder: Ladder) -> Report:
    trl, (baseline, *above) = ladder.trl, ladder.levels
    speeds: list[tuple[str, SpeedUp, str]] = [
        (baseline.level, SpeedUp(1.0, None, None, ladder.rounds), "reference")
    ]
    speeds += [(one.level, one.cumulative, _guard(one)) for one in above if one.cumulative]
    rows = [
        (
            one.level,
            *_figures(one.figures),
            speed_words(one.cumulative),
            speed_words(one.step_up),
            _guard(one),
        )
        for one in ladder.levels
    ]
    if trl.figures is not None:
        ratio = speed_words(trl.over_baseline)
        rows.append(("trl's defaults", *_figures(trl.figures), ratio, "-", "-"))
    if trl.over_baseline is not None:
        speeds.append(("trl's defaults", trl.over_baseline, "reference"))
    return Report(
        title=f"Ladder of {ladder.headline}",
        place=_place(ladder),
        answer=_answer(ladder),
        table="Levels",
        headings=OF_LADDER,
        rows=tuple(rows),
        more=_trl_words(ladder),
        yaml="",
        sections=tuple(
            (level.level, tuple(_lines(level, below, ladder.levels)))
            for level, below in zip(above, ladder.levels, strict=False)
        ),
        notes=ladder.notes,
        folder=str(ladder.folder),
        chart="Speed-up of each level",
        speeds=tuple(speeds),
    )


def _answer(ladder: Ladder) -> str:
    """Return the headline: what is unsafe, and the speed-up of the highest safe level."""
    gain = _gain(ladder)
    unsafe = [one.level for one in ladder.levels if one.unsafe]
    if unsafe:
        learn = "does not learn" if len(unsafe) == 1 else "do not learn"
        return f"UNSAFE: {', '.join(unsafe)} {learn} the same as the baseline. {gain}"
    if unguarded := [one.level for one in ladder.levels if one.unguarded]:
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


def _trl_words(ladder: Ladder) -> str:
    trl = ladder.trl
    if trl.over_baseline is None:
        return f"trl's defaults were not timed: {trl.problem}"
    return f"trl's defaults run {speed_words(trl.over_baseline)} as fast as the baseline."


def _guard(level: LevelFound) -> str:
    if level.guarded is None:
        return "-"
    return "UNSAFE" if level.unsafe else "not run" if level.unguarded else "holds"


def _figures(found: Figures | None) -> Cells:
    """Return the cells of SHOWN."""
    if found is None:
        return ("-",) * len(SHOWN)
    return (
        significant(found.samples_per_s, 3),
        _or_dash(found.tokens_per_s, "{:,.0f}"),
        "-" if found.step_s is None else f"{significant(1000 * found.step_s, 3)} ms",
        _or_dash(found.gpu_pct, "{:.0f}%"),
        _or_dash(found.cpu_pct, "{:.0f}%"),
        _or_dash(found.memory_mb, "{:,.0f} MB"),
        _or_dash(found.gil_share, "{:.1%}"),
    )


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


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
    return lines + (_guard_lines(level.guarded) if level.guarded else [])


def _guard_lines(guarded: Guarded) -> list[tuple[str, str]]:
    both = ((guarded.exact, "guard in float32"), (guarded.wide, "guard as it is"))
    lines = [(words, f"{one.state}: {one.words}") for one, words in both if one is not None]
    if guarded.broken:
        none = "no switch of this level breaks the guard alone"
        lines.append(("cause", ", ".join(guarded.blamed) or none))
    return lines


def _of_advice(advice: Advice) -> Report:
    def is_advised(one: Advised) -> bool:
        return one.worth_it and one.settings.items() <= advice.settings.items()

    def why(one: Advised) -> str:
        return one.problem if one.guard is None or one.guard.holds else one.guard.words

    advised = {one.switch for one in advice.candidates if is_advised(one)}
    sections = (
        ("UNSAFE or not run", [(one.switch, why(one)) for one in advice.candidates if one.problem]),
        ("Skipped", [(one.switch, one.reason) for one in advice.skipped]),
    )
    base = None if advice.base is None else advice.base.samples_per_s
    return Report(
        title=f"Advice for {advice.headline}",
        place=_place(advice),
        answer=_advice_answer(advice, len(advised)),
        table="Switches",
        headings=OF_ADVICE,
        rows=tuple(
            (
                one.switch,
                settings_words(one.settings),
                speed_words(one.gain),
                "-" if one.guard is None else one.guard.state,
                "yes" if is_advised(one) else "no",
            )
            for one in advice.candidates
        ),
        more="" if base is None else f"Your config: {significant(base, 3)} samples/s.",
        yaml=yaml_lines(advice.settings),
        sections=tuple((title, tuple(lines)) for title, lines in sections if lines),
        notes=advice.notes,
        folder=str(advice.folder),
        chart="Gain of each switch alone",
        speeds=tuple(
            (one.label, one.gain, one.guard.state)
            for one in advice.candidates
            if one.gain and one.guard
        ),
    )


def _advice_answer(advice: Advice, count: int) -> str:
    """Return the first line: how much there is to gain. `count`: of switches that are advised."""
    if not count:
        return "No switch makes this config faster for sure."
    paying = "1 switch pays" if count == 1 else f"{count} switches pay"
    together = advice.together
    if together is None:
        return f"{paying}."
    if together.gain is None:
        return f"{paying} alone; together they did not run: {together.problem}."
    if (guard := together.guard) is not None and not guard.holds:
        unsafe = "UNSAFE " if guard.ran else ""
        return f"{paying} alone; {unsafe}together{':' if guard.ran else ''} {guard.words}."
    return f"{paying}, together {speed_words(together.gain)}."


def yaml_lines(settings: Settings) -> str:
    """Write settings by dotted key as lines of a config."""
    tree: dict[str, Any] = {}
    for key, value in settings.items():
        section, _, name = key.rpartition(".")
        (tree.setdefault(section, {}) if section else tree)[name] = value
    return yaml.safe_dump(tree, sort_keys=False) if tree else ""
