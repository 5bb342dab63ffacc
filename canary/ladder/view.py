"""The report of a ladder: JSON, and the values for the text and Markdown templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from canary.ladder.climb import tried_words
from canary.ladder.labels import (
    answer,
    rounds_words,
    settings_words,
    speed_words,
    state_word,
    verdict_words,
)
from canary.ladder.measure import Figures
from canary.ladder.results import Advice, Guarded, Ladder, LevelFound
from canary.record import jsonio
from canary.record.phases import PHASES
from canary.report.lines import figures, wrapped
from canary.report.numbers import significant
from canary.report.render import FORMATS, check_format, environment, tidy, write_text

DOCUMENT_VERSION = 1
HEADINGS = (
    "level",
    "samples/s",
    "tokens/s",
    "step",
    "GPU",
    "CPU (% of one core)",
    "memory",
    "GIL",
    "speed-up",
    "step up",
    "guard",
)
LEAST = ("GIL", "CPU (% of one core)", "GPU", "memory", "tokens/s")
"""Columns that a narrow terminal drops, in this order."""
Cells = tuple[str, ...]


@dataclass(frozen=True)
class LevelView:
    """The lines about one level below the table."""

    name: str
    lines: tuple[tuple[str, str], ...]
    """Label and text."""


@dataclass(frozen=True)
class LadderView:
    """The values for the templates."""

    title: str
    place: str
    answer: str
    rows: tuple[Cells, ...]
    phase_headings: Cells
    phases: tuple[Cells, ...]
    levels: tuple[LevelView, ...]
    trl: str
    notes: tuple[str, ...]
    folder: str


def ladder_text(ladder: Ladder, form: str, width: int | None = None) -> str:
    """Render a ladder in one of the formats; see `report_text`."""
    view = view_of_ladder(ladder)
    return report_text("ladder", form, document_of(ladder), view, HEADINGS, width)


def report_text(
    name: str,
    form: str,
    document: Mapping[str, Any],
    view: Any,
    headings: Cells,
    width: int | None = None,
) -> str:
    """Render a report as JSON, or as text or Markdown with the templates of that name. It ends with
    a line break; lines of text fit `width`.

    Raises:
        UsageError: unknown format.
    """
    check_format(form)
    if form == "json":
        return jsonio.dumps(document, indent=1) + "\n"
    intervals = any("x [" in cell for row in view.rows for cell in row)
    if form == "markdown":
        template = environment().get_template(f"{name}.md.jinja")
        return tidy(template.render(view=view, headings=headings, intervals=intervals))

    def aligned(headings: Cells, rows: Sequence[Cells], indent: int = 0) -> list[str]:
        return figures(headings, rows, width and width - indent, LEAST)

    template = environment().get_template(f"{name}.txt.jinja")
    text = template.render(aligned=aligned, view=view, headings=headings, intervals=intervals)
    return wrapped(tidy(text), width)


def left_in(folder: Path, name: str, texts: Sequence[str]) -> None:
    """Write a report into a folder; `texts` has one text for each of FORMATS.

    Raises:
        MachineError: the files cannot be written.
    """
    for form, text in zip(FORMATS, texts, strict=True):
        suffix = {"text": "txt", "markdown": "md", "json": "json"}[form]
        write_text(folder / f"{name}.{suffix}", text)


def write_ladder(ladder: Ladder, path: Path) -> None:
    """Write the HTML page of a ladder."""
    from canary.ladder.page import ladder_page

    write_text(path, ladder_page(ladder))


def write_result(file: Path, path: Path) -> None:
    """Write the HTML page of a result.

    Raises:
        RecordError: the result cannot be read.
    """
    from canary.ladder.page import result_page

    write_text(path, result_page(file))


def write_advice(advice: Advice, path: Path) -> None:
    """Write the HTML page of an advice."""
    from canary.ladder.page import advice_page

    write_text(path, advice_page(advice))


def document_of(ladder: Ladder) -> dict[str, Any]:
    """Return the JSON report, with everything that was found."""
    found = asdict(ladder) | {"folder": str(ladder.folder)}
    for shown, level in zip(found["levels"], ladder.levels, strict=True):
        shown["unsafe"] = level.unsafe
        for entry, tried in zip(shown["tried"], level.tried, strict=True):
            entry["words"] = tried_words(tried)
    return {
        "schema_version": DOCUMENT_VERSION,
        "passed": ladder.passed,
        "answer": answer(ladder),
        **found,
    }


def view_of_ladder(ladder: Ladder) -> LadderView:
    """Put a ladder into words."""
    shown: list[tuple[str, Figures | None]] = [(one.level, one.figures) for one in ladder.levels]
    if ladder.trl.figures is not None:
        shown.append(("trl's defaults", ladder.trl.figures))
    names = [
        name for name in PHASES if any(figures and figures.phases.get(name) for _, figures in shown)
    ]
    return LadderView(
        title=f"Ladder of {ladder.headline}",
        place=(
            f"{ladder.machine.words}; {rounds_words(ladder.rounds)}, each launch in a separate "
            f"process; {ladder.created}"
        ),
        answer=answer(ladder),
        rows=(*map(_row, ladder.levels), *_trl_row(ladder)),
        phase_headings=("ms per step", *map(_phase_word, names)),
        phases=tuple(
            (name, *(_ms(figures.phases.get(phase)) for phase in names))
            for name, figures in shown
            if figures is not None
        ),
        levels=tuple(
            LevelView(level.level, tuple(_lines(level, below, ladder.levels)))
            for level, below in zip(ladder.levels[1:], ladder.levels, strict=False)
        ),
        trl=_trl_words(ladder),
        notes=ladder.notes,
        folder=str(ladder.folder),
    )


def figure_cells(figures: Figures | None) -> Cells:
    """Return samples and tokens per second, step, GPU, CPU, memory, GIL."""
    if figures is None:
        return ("-",) * 7
    return (
        significant(figures.samples_per_s, 3),
        _or_dash(figures.tokens_per_s, "{:,.0f}"),
        "-" if figures.step_s is None else f"{_ms(figures.step_s)} ms",
        _or_dash(figures.gpu_pct, "{:.0f}%"),
        _or_dash(figures.cpu_pct, "{:.0f}%"),
        _or_dash(figures.memory_mb, "{:,.0f} MB"),
        "-" if figures.gil_share is None else f"{100 * figures.gil_share:.1f}%",
    )


def _phase_word(phase: str) -> str:
    return "rollout" if phase == "generation" else phase


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else significant(1000 * seconds, 3)


def _row(level: LevelFound) -> Cells:
    guard = "-" if level.guarded is None else "holds" if level.guarded.holds else "UNSAFE"
    guard = "not run" if level.unguarded and not level.unsafe else guard
    speeds = (speed_words(level.cumulative), speed_words(level.step_up))
    return (level.level, *figure_cells(level.figures), *speeds, guard)


def _trl_row(ladder: Ladder) -> tuple[Cells, ...]:
    trl = ladder.trl
    if trl.figures is None:
        return ()
    speeds = (speed_words(trl.over_baseline), "-")
    return (("trl's defaults", *figure_cells(trl.figures), *speeds, "-"),)


def _lines(
    level: LevelFound, below: LevelFound, levels: Sequence[LevelFound]
) -> list[tuple[str, str]]:
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
    ratios = (("speed-up", level.cumulative), ("step up", level.step_up))
    lines += [
        (name, "no sure gain: the interval includes 1")
        for name, ratio in ratios
        if ratio is not None and ratio.open
    ]
    changed = {
        key: value
        for key, value in level.settings.items()
        if key not in below.settings or below.settings[key] != value
    }
    lines.append(("switched on", ", ".join(level.switched) or "nothing"))
    lines.append(("settings", settings_words(changed) or "same as the level below"))
    lines += [("tried", tried_words(one)) for one in level.tried]
    lines += [("skipped", f"{one.switch}: {one.reason}") for one in level.skipped]
    if level.guarded is not None:
        lines += _guard_lines(level.guarded)
    return lines


def _guard_lines(guarded: Guarded) -> list[tuple[str, str]]:
    lines = []
    for verdict, words in ((guarded.exact, "in float32"), (guarded.wide, "as it is")):
        if verdict is not None:
            lines.append((f"guard {words}", f"{state_word(verdict)}: {verdict_words(verdict)}"))
    if guarded.blamed:
        lines.append(("cause", ", ".join(guarded.blamed)))
    elif guarded.note:
        lines.append(("cause", guarded.note))
    return lines


def _trl_words(ladder: Ladder) -> str:
    trl = ladder.trl
    if trl.skipped:
        return f"trl's defaults were skipped: {trl.problem}"
    if trl.problem or trl.over_baseline is None:
        return f"trl's defaults were not timed: {trl.problem}"
    speed = f"trl's defaults run {speed_words(trl.over_baseline)} as fast as the baseline"
    if trl.undecided:
        return f"{speed}. Their share of the top level's gain is undecided: {trl.undecided}."
    if trl.share is None:
        return f"{speed}."
    if trl.share == 0:
        return f"{speed}, so they have none of the top level's gain (0%)."
    return (
        f"{speed}. They have {100 * trl.share:.0f}% of the top level's gain "
        "(in logarithms, because factors multiply)."
    )
