"""What the rules say of one run, as lines of the terminal, Markdown and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from canary.compare.rules import RULES, unknown
from canary.compare.rules.rule import Answer, Rule
from canary.config.load import LoadedConfig
from canary.errors import EXIT_INCONCLUSIVE, EXIT_OK, EXIT_REGRESSION, ConfigError, counted
from canary.report.document import json_lines
from canary.report.render import check_format, filled

VERSION = 2
Asked = Sequence[tuple[Rule, Answer]]


def refuse_unknown(loaded: LoadedConfig) -> None:
    """Refuse a config that disables what is no rule.

    Raises:
        ConfigError: names the key, the rule and a similar one.
    """
    wrong = unknown(loaded.config.check.disable)
    if wrong is not None:
        place = loaded.origins.get("check.disable", "the config")
        raise ConfigError(
            f"check.disable in {place}: there is no rule {wrong[0]!r}",
            wrong[1],
            key="check.disable",
        )


def of_status(found: Asked, status: str) -> Asked:
    """Return the rules with a status, in their order."""
    return [one for one in found if one[1].status == status]


def exit_code(found: Asked) -> int:
    """Return 1 if a rule is broken, 3 if none could be checked, else 0."""
    if of_status(found, "broken"):
        return EXIT_REGRESSION
    return EXIT_OK if of_status(found, "holds") else EXIT_INCONCLUSIVE


def first_line(found: Asked) -> str:
    """Return the answer as a sentence."""
    broken, held = of_status(found, "broken"), len(of_status(found, "holds"))
    unasked = len(_open(found))
    if broken:
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        return f"Broken: {broken[0][1].words}{more}."
    if not held:
        return "No rule could be checked."
    notes = of_status(found, "note")
    if notes:
        more = f" (and {len(notes) - 1} more)" if len(notes) > 1 else ""
        return f"No rule is broken, but this looks odd: {notes[0][1].words}{more}."
    holds = f"{counted(held, 'rule')} hold{'s' if held == 1 else ''}"
    could = f", {unasked} could not be checked" if unasked else ""
    return f"Nothing wrong was found: {holds}{could}."


def answer_lines(found: Asked) -> list[str]:
    """Return one line for each rule that found something, those that are broken first. If none is
    broken, a line before says so."""
    why = " `canary check` says why." if _open(found) else ""
    lines = [] if of_status(found, "broken") else [f"  rules       {first_line(found)}{why}"]
    return lines + [
        f"  {status:<11} {said.words}{_at(said)} ({rule.id}); {said.doubt or rule.do}"
        for status in ("broken", "note")
        for rule, said in of_status(found, status)
    ]


def _at(said: Answer) -> str:
    return f", at {said.place}" if said.place and said.place not in said.words else ""


def _open(found: Asked) -> Asked:
    """Return what could not be checked, but for rules of other trainings."""
    return [one for one in of_status(found, "not asked") if not one[1].inapplicable]


def answer_text(found: Asked, folder: str, form: str, width: int | None = None) -> str:
    """Render the answer in one of the formats, ending with a line break; `folder`: of the run.

    Raises:
        UsageError: unknown format.
    """
    check_format(form)
    document = answer_document(found, folder)
    if form == "json":
        return json_lines(document)
    unasked: dict[str, list[str]] = {}
    for rule, said in _open(found):
        unasked.setdefault(said.words, []).append(rule.id)
    count = sum(said.inapplicable for _, said in found)
    others = (
        f"{counted(count, 'rule')} {'is' if count == 1 else 'are'} for other kinds of training."
    )
    shown = document | {"unasked": unasked, "others": others if count else ""}
    return filled("rules", form, width, **shown)


def answer_document(found: Asked, folder: str) -> dict[str, Any]:
    """Return the answer as plain data."""
    return {
        "schema_version": VERSION,
        "first_line": first_line(found),
        "exit_code": exit_code(found),
        "rules": [
            {
                "rule": rule.id,
                "status": said.status,
                "for_others": said.inapplicable,
                "words": said.words,
                "place": said.place,
                "doubt": said.doubt,
                "holds_if": rule.holds,
                "do": rule.do,
                "source": rule.source,
            }
            for rule, said in found
        ],
        "record": folder,
    }


def listing() -> str:
    """Return all rules as text."""
    width = max(len(one.id) for one in RULES)
    return "".join(
        f"{one.id.ljust(width)}  {one.holds[0].upper()}{one.holds[1:]}.\n" for one in RULES
    )
