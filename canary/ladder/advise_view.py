"""An advice as people read it: what pays, in order of gain, and the lines to paste."""

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
from canary.ladder.view import DOCUMENT_VERSION, Row, report_text
from canary.report.numbers import significant

HEADINGS = ("switch", "settings", "gain", "guard", "advised")


@dataclass(frozen=True)
class AdviceView:
    """What the templates fill in."""

    title: str
    place: str
    answer: str
    rows: tuple[Row, ...]
    yaml: str
    """The lines to paste; empty where nothing is advised."""
    together: str
    skipped: tuple[tuple[str, str], ...]
    broken: tuple[tuple[str, str], ...]
    """Switches whose guard does not hold, or that did not run, and why."""
    notes: tuple[str, ...]
    folder: str


def advice_text(advice: Advice, form: str, width: int | None = None) -> str:
    """An advice in one of the formats, ending with a line break; as text, of lines that fit the
    width where there is one.

    Raises:
        UsageError: no such format.
    """
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
    """Everything in words."""
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
    """Settings by dotted key as the lines of a config."""
    tree: dict[str, Any] = {}
    for key, value in settings.items():
        *sections, last = key.split(".")
        inner = tree
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[last] = value
    return yaml.safe_dump(tree, sort_keys=False) if tree else ""


def answer(advice: Advice) -> str:
    """The first line: how much there is to gain."""
    count = len({one.switch for one in advice.candidates if _advised(one, advice)})
    if not count:
        return "No switch makes this config faster for sure."
    said = "1 switch pays" if count == 1 else f"{count} switches pay"
    together = advice.together
    if together is None:
        return f"{said}."
    if together.gain is None:
        return f"{said}; together they did not run: {together.problem}."
    if together.guard is not None and not together.guard.ran:
        return f"{said} alone; together {verdict_words(together.guard)}."
    if together.guard is not None and not together.guard.holds:
        return f"{said} alone; UNSAFE together: {verdict_words(together.guard)}."
    return f"{said}: together {speed_words(together.gain)}."


def _advised(one: Advised, advice: Advice) -> bool:
    return one.worth_it and all(
        advice.settings.get(key) == value for key, value in one.settings.items()
    )


def _row(one: Advised, advice: Advice) -> Row:
    guard = "-" if one.guard is None else state_word(one.guard)
    gain = speed_words(one.gain)
    return (
        one.switch,
        settings_words(one.settings),
        gain,
        guard,
        "yes" if _advised(one, advice) else "no",
    )


def _why(one: Advised) -> str:
    if one.guard is not None and not one.guard.holds:
        return verdict_words(one.guard)
    return one.problem or "was not guarded"


def _together(advice: Advice) -> str:
    base = advice.base
    said = "" if base is None else f"Your config: {significant(base.samples_per_s, 3)} samples/s."
    if advice.together is not None and advice.together.gain is not None:
        said += f" All that is advised, at once: {speed_words(advice.together.gain)}."
    return said.strip()
