"""The report of `--advise`: what pays, in order of gain, and the lines to paste."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import yaml

from canary.ladder.labels import (
    rounds_words,
    settings_words,
    speed_words,
    state_word,
    verdict_words,
)
from canary.ladder.levels import Settings
from canary.ladder.results import Advice, Advised
from canary.ladder.view import DOCUMENT_VERSION, Cells, report_text
from canary.report.numbers import significant

HEADINGS = ("switch", "settings", "gain", "guard", "advised")


@dataclass(frozen=True)
class AdviceView:
    """The values for the templates."""

    title: str
    place: str
    answer: str
    rows: tuple[Cells, ...]
    yaml: str
    """The lines to paste; empty if nothing is recommended."""
    together: str
    skipped: tuple[tuple[str, str], ...]
    broken: tuple[tuple[str, str], ...]
    """Switches that are unsafe or did not run, and why."""
    notes: tuple[str, ...]
    folder: str


def advice_text(advice: Advice, form: str, width: int | None = None) -> str:
    """Render an advice in one of the formats; see `report_text`."""
    view = view_of_advice(advice)
    return report_text("advice", form, _document(advice), view, HEADINGS, width)


def _document(advice: Advice) -> dict[str, Any]:
    found = asdict(advice) | {"folder": str(advice.folder)}
    return {
        "schema_version": DOCUMENT_VERSION,
        "passed": advice.passed,
        "answer": answer(advice),
        "yaml": yaml_lines(advice.settings),
        **found,
    }


def view_of_advice(advice: Advice) -> AdviceView:
    """Put an advice into words."""
    return AdviceView(
        title=f"Advice for {advice.headline}",
        place=f"{advice.machine.words}; {rounds_words(advice.rounds)}; {advice.created}",
        answer=answer(advice),
        rows=tuple(_row(one, advice) for one in advice.candidates),
        yaml=yaml_lines(advice.settings),
        together=_together(advice),
        skipped=tuple((one.switch, one.reason) for one in advice.skipped),
        broken=tuple(
            (one.switch, _why(one))
            for one in advice.candidates
            if one.problem or one.guard is None or not one.guard.holds
        ),
        notes=advice.notes,
        folder=str(advice.folder),
    )


def yaml_lines(settings: Settings) -> str:
    """Write settings by dotted key as lines of a config."""
    tree: dict[str, Any] = {}
    for key, value in settings.items():
        *sections, last = key.split(".")
        inner = tree
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[last] = value
    return yaml.safe_dump(tree, sort_keys=False) if tree else ""


def answer(advice: Advice) -> str:
    """Return the first line: how much there is to gain."""
    count = len({one.switch for one in advice.candidates if _advised(one, advice)})
    if not count:
        return "No switch makes this config faster for sure."
    paying = "1 switch pays" if count == 1 else f"{count} switches pay"
    together = advice.together
    if together is None:
        return f"{paying}."
    if together.gain is None:
        return f"{paying} alone; together they did not run: {together.problem}."
    if together.guard is not None and not together.guard.ran:
        return f"{paying} alone; together {verdict_words(together.guard)}."
    if together.guard is not None and not together.guard.holds:
        return f"{paying} alone; UNSAFE together: {verdict_words(together.guard)}."
    return f"{paying}, together {speed_words(together.gain)}."


def _advised(one: Advised, advice: Advice) -> bool:
    return one.worth_it and all(
        advice.settings.get(key) == value for key, value in one.settings.items()
    )


def _row(one: Advised, advice: Advice) -> Cells:
    guard = "-" if one.guard is None else state_word(one.guard)
    advised = "yes" if _advised(one, advice) else "no"
    return (one.switch, settings_words(one.settings), speed_words(one.gain), guard, advised)


def _why(one: Advised) -> str:
    if one.guard is not None and not one.guard.holds:
        return verdict_words(one.guard)
    return one.problem or "not guarded"


def _together(advice: Advice) -> str:
    base = advice.base
    return "" if base is None else f"Your config: {significant(base.samples_per_s, 3)} samples/s."
