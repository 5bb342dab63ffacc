"""Known faults of packages as rows, and the answer of `canary advisories`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from canary.advisories.advisory import Advisory
from canary.advisories.condition import words
from canary.advisories.matching import Match
from canary.relations import RELATIONS
from canary.report.document import json_lines
from canary.report.escape import on_lines
from canary.report.lines import wrapped
from canary.report.links import short_link
from canary.report.render import check_format, environment, tidy

DOCUMENT_VERSION = 1


@dataclass(frozen=True)
class AdvisoryRow:
    """One advisory as strings."""

    id: str
    package: str
    """With its installed version, if there is one."""
    versions: str
    only_if: str
    """Empty if it applies for sure."""
    wrong: str
    remedy: str
    relation: str
    """The relation of `canary check` that shows it; empty without one."""
    link: str
    """An address on GitHub or official pages: advisories have no others."""
    short: str
    """The link as people name it."""
    fix: str
    """Empty if it is open, or the same as `link`."""


@dataclass(frozen=True)
class AdvisoriesView:
    """The answer as strings."""

    first_line: str
    sure: tuple[AdvisoryRow, ...]
    conditional: tuple[AdvisoryRow, ...]


def advisory_row(one: Advisory, version: str = "", only_if: str = "") -> AdvisoryRow:
    """Return an advisory as strings."""
    return AdvisoryRow(
        one.id,
        f"{one.package} {version}".strip(),
        one.versions,
        only_if,
        one.wrong,
        one.remedy,
        one.relation if one.relation in RELATIONS else "",
        one.link,
        short_link(one.link),
        one.fix if one.fix and one.fix != one.link else "",
    )


def match_row(match: Match) -> AdvisoryRow:
    """Return a match as strings."""
    return advisory_row(match.advisory, match.version, match.only_if)


def advisories_view(found: Sequence[Match], whose: str) -> AdvisoriesView:
    """Return the answer; `whose`: of what the packages are."""
    rows = [match_row(one) for one in found]
    sure = tuple(row for row in rows if not row.only_if)
    conditional = tuple(row for row in rows if row.only_if)
    return AdvisoriesView(_first_line(len(sure), len(conditional), whose), sure, conditional)


def _first_line(sure: int, conditional: int, whose: str) -> str:
    if not sure and not conditional:
        return f"No known fault applies to {whose}."
    count = f"{sure} known fault{'' if sure == 1 else 's'}" if sure else "No known fault"
    verb = "apply" if sure > 1 else "applies"
    others = f" {conditional} appl{'ies' if conditional == 1 else 'y'} under a condition."
    return f"{count} certainly {verb}.{others if conditional else ''}"


def all_view(listed: Sequence[Advisory]) -> AdvisoriesView:
    """Return every advisory, whatever is installed."""
    rows = tuple(advisory_row(one) for one in listed)
    return AdvisoriesView(f"{len(rows)} known faults, installed or not.", rows, ())


def advisories_text(view: AdvisoriesView, form: str, width: int | None = None) -> str:
    """Render the answer as text or Markdown, ending with a line break.

    Raises:
        UsageError: unknown format.
    """
    check_format(form)
    template = f"advisories.{'md' if form == 'markdown' else 'txt'}.jinja"
    text = (
        tidy(environment().get_template(template).render(view=on_lines(view))).rstrip("\n") + "\n"
    )
    return text if form == "markdown" else wrapped(text, width)


def advisories_json(found: Sequence[Match | Advisory], first_line: str) -> str:
    """Return the answer as JSON, ending with a line break."""
    document = {
        "schema_version": DOCUMENT_VERSION,
        "first_line": first_line,
        "advisories": [
            match_document(one) if isinstance(one, Match) else advisory_document(one)
            for one in found
        ],
    }
    return json_lines(document)


def advisory_document(one: Advisory) -> dict[str, Any]:
    """Return an advisory as plain data."""
    return one.model_dump(mode="json")


def match_document(match: Match) -> dict[str, Any]:
    """Return a match as plain data."""
    return {
        **advisory_document(match.advisory),
        "installed": match.version,
        "applies": "if" if match.unknown else "yes",
        "only_if": list(match.unknown),
    }


def advisories_table(listed: Sequence[Advisory]) -> str:
    """Return a Markdown table of advisories, for the docs."""
    lines = ["| fault | versions | if | what goes wrong | shown by |", "|---|---|---|---|---|"]
    for one in listed:
        row = advisory_row(one)
        condition = "; ".join([*_words(one), *([one.when] if one.when else [])])
        cells = (
            f"[{row.id}]({row.link})",
            f"`{row.package}{row.versions}`",
            condition,
            row.wrong,
            f"`{row.relation}`" if row.relation else "",
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _words(one: Advisory) -> list[str]:
    return [words(key, test) for key, test in one.condition.items()]
