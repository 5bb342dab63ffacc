"""Render one canary's part of the comment, and omit parts until it fits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from canary.compare.diagnosis.suspects import RegressionCategory
from canary.compare.report import Comparison
from canary.github.status import Source
from canary.report.bisect_hint import Hint
from canary.report.escape import ZERO_WIDTH, on_lines
from canary.report.render import HEADINGS, environment, table, tidy
from canary.report.view import SUMMARY_ROWS, View, view_of

TEMPLATE = "comment.md.jinja"
MOST_ROWS = 5_000
"""Rows kept per table, more than any comment holds: each cut escapes them all again."""
CUT_HERE = "\n\n(cut here for length; the full report is in the run's artifacts)\n"


@dataclass(frozen=True)
class CommentView(View):
    """The view of a comparison for a comment, with the names of omitted parts."""

    left_out: tuple[str, ...] = ()
    note: str = ""
    """Shown below the first line instead of among the notes."""
    lead: tuple[tuple[str, str], ...] = ()
    """What a reviewer needs beside the first line, each with its label; the rest is folded."""


CUTS: tuple[tuple[str, Callable[[CommentView], CommentView]], ...] = (
    ("skipped checks", lambda view: replace(view, skipped=())),
    ("environment", lambda view: replace(view, environment=())),
    (
        "checks that passed",
        lambda view: replace(view, rows=tuple(row for row in view.rows if not row.passed)),
    ),
    ("config after 20 keys", lambda view: replace(view, config=view.config[:20])),
    ("warnings", lambda view: replace(view, warned=())),
    ("undecided checks after the first", lambda view: replace(view, undecided=view.undecided[:1])),
    ("the table of checks", lambda view: replace(view, rows=())),
    ("config", lambda view: replace(view, config=())),
    ("failed checks after the fifth", lambda view: replace(view, failed=view.failed[:5])),
    ("suspects after the first", lambda view: replace(view, suspects=view.suspects[:1])),
    ("differences after the third", lambda view: replace(view, chain=view.chain[:3])),
)
"""Names of parts and how to cut them, the least useful first."""


def comment_view(
    found: Comparison,
    note: str = "",
    hint: Hint | None = None,
) -> CommentView:
    """Return the view of a comparison, with all that a comment could hold."""
    whole = view_of(found, hint)
    parts: dict[str, Any] = {}
    for name in View.__dataclass_fields__:
        part = getattr(whole, name)
        parts[name] = part[:MOST_ROWS] if isinstance(part, tuple) else part
    parts["notes"] = tuple(one for one in parts["notes"] if one != note)
    lead = tuple(_lead(found, whole))
    return on_lines(CommentView(**parts, note=note, lead=lead))


MOST_NAMED = 6
"""Failed checks that the lead names beside that of the first line."""
LEADING = ("step_time_median_s", "tokens_per_sec", "max_mem_mb", "final_loss")
"""Figures of the summary that the lead repeats if nothing failed."""


def _lead(found: Comparison, view: View) -> Iterator[tuple[str, str]]:
    """Yield labelled sentences; the first lines have said verdict, place and what to do."""
    others = []
    for row in view.failed[1:]:
        of_quantity = row.group != "correctness" and row.change.endswith("%")
        others.append(f"{row.title} {row.change}" if of_quantity else row.title)
    if others:
        more = f" and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
        yield "Also failed or changed", f"{', '.join(others[:MOST_NAMED])}{more}"
    top = found.diagnosis.top_suspect
    if view.failed and top is not None and top.category is not RegressionCategory.UNKNOWN:
        yield view.why, top.description.rstrip(".")
    if view.undecided and not view.failed:
        yield "Undecided", ", ".join(row.title for row in view.undecided)
    if not view.failed:
        shown = {key: label for label, key, *_ in SUMMARY_ROWS if key in LEADING}
        figures = [row for row in view.summary if row[0] in shown.values()]
        changes = ((label, was, "" if was == now else f" -> {now}") for label, was, now in figures)
        said = [f"{label} {was}{change}" for label, was, change in changes]
        if said:
            yield "Figures", "; ".join(said)


def section(
    found: Comparison,
    source: Source,
    limit: int,
    note: str = "",
    hint: Hint | None = None,
) -> str:
    """Return the Markdown of one comparison, at most `limit` characters.

    `note`: the note to show below the first line. `hint`: how to find the culprit.
    """
    view = comment_view(found, note, hint)
    text = _render(view, source)
    for name, cut in CUTS:
        if len(text) <= limit:
            return text
        smaller = cut(view)
        if smaller != view:
            view = replace(smaller, left_out=(*smaller.left_out, name))
            text = _render(view, source)
    if len(text) > limit:
        text = text[: limit - len(CUT_HERE)].rsplit("\n", 1)[0] + CUT_HERE
    return text


def _render(view: CommentView, source: Source) -> str:
    template = environment().get_template(TEMPLATE)
    text = template.render(view=view, source=source, table=table(view), headings=HEADINGS)
    # No text may begin an HTML comment, because our marks are HTML comments.
    return re.sub(r"<(?=!--)", f"<{ZERO_WIDTH}", tidy(text))
