"""One canary's part of the comment, cut part by part until it fits."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jinja2

from canary.compare.report import Comparison
from canary.errors import ConfigError
from canary.github.confined import confined, unusable
from canary.github.source import Source
from canary.report.escape import ZERO_WIDTH, on_lines
from canary.report.render import HEADINGS, environment, table, tidy
from canary.report.view import Row, View, view_of

TEMPLATE = "comment.md.jinja"
MOST_ROWS = 5_000
"""More rows of a table than any comment holds; all of them would be escaped with each cut."""
CUT_HERE = "\n\n(cut here for length; the run keeps the whole report)\n"


@dataclass(frozen=True)
class CommentView(View):
    """The view of a comparison, and what was left out of it."""

    left_out: tuple[str, ...] = ()
    note: str = ""
    """Shown under the first line, and not among the notes."""


CUTS: tuple[tuple[str, Callable[[CommentView], CommentView]], ...] = (
    ("skipped checks", lambda view: replace(view, skipped=())),
    ("environment", lambda view: replace(view, environment=())),
    ("checks that passed", lambda view: replace(view, rows=_without_passed(view))),
    ("config beyond 20 keys", lambda view: replace(view, config=view.config[:20])),
    ("notes", lambda view: replace(view, notes=view.notes[:3])),
    ("warnings", lambda view: replace(view, warned=())),
    ("what is not decided", lambda view: replace(view, undecided=view.undecided[:1])),
    ("alerts beyond the worst", lambda view: replace(view, alerts=view.alerts[:1])),
    ("the table of checks", lambda view: replace(view, rows=())),
    ("config", lambda view: replace(view, config=())),
    ("failed checks beyond 5", lambda view: replace(view, failed=view.failed[:5])),
    ("suspects beyond the first", lambda view: replace(view, suspects=view.suspects[:1])),
    ("the chain beyond 3 stages", lambda view: replace(view, chain=view.chain[:3])),
)
"""What goes first, least telling first."""


def _without_passed(view: CommentView) -> tuple[Row, ...]:
    return tuple(row for row in view.rows if not row.passed)


def comment_view(found: Comparison, note: str = "") -> CommentView:
    """The view of a comparison with nothing left out that a comment could hold."""
    whole = view_of(found)
    parts: dict[str, Any] = {}
    for name in View.__dataclass_fields__:
        part = getattr(whole, name)
        parts[name] = part[:MOST_ROWS] if isinstance(part, tuple) else part
    parts["notes"] = tuple(one for one in parts["notes"] if one != note)
    return on_lines(CommentView(**parts, note=note))


def section(
    found: Comparison,
    source: Source,
    limit: int,
    own: Mapping[str, str] | None = None,
    note: str = "",
) -> str:
    """The Markdown of one comparison, at most `limit` characters.

    `own`: templates of the user by name; `comment.md.jinja` among them replaces ours, and may
    extend it. `note`: the one that comes first.

    Raises:
        ConfigError: the user's template cannot be rendered.
    """
    view = comment_view(found, note)
    if own:
        return confined(drawn, dict(own), view, source, limit)
    return drawn({}, view, source, limit)


def drawn(own: Mapping[str, str], view: CommentView, source: Source, limit: int) -> str:
    """The Markdown of a view, at most `limit` characters.

    Raises:
        ConfigError: the user's template cannot be rendered.
        MemoryError: it has no room; the only limit that is noticed in here.
    """
    template = _template(own)
    text = _render(template, view, source)
    for name, cut in CUTS:
        if len(text) <= limit:
            return text
        smaller = cut(view)
        if smaller != view:
            view = replace(smaller, left_out=(*smaller.left_out, name))
            text = _render(template, view, source)
    if len(text) > limit:
        text = text[: limit - len(CUT_HERE)].rsplit("\n", 1)[0] + CUT_HERE
    return text


def _template(own: Mapping[str, str]) -> jinja2.Template:
    given = dict(own)
    theirs = given.pop(TEMPLATE, None)
    made = environment(given)
    if theirs is None:
        return made.get_template(TEMPLATE)
    try:
        return made.from_string(theirs)
    except jinja2.TemplateSyntaxError as error:
        raise ConfigError(
            f"the comment template is not Jinja: line {error.lineno}: {error.message}",
            "correct that line",
        ) from error
    except (RecursionError, SyntaxError, ValueError) as error:
        raise unusable(f"{type(error).__name__}: {error}") from error


def _render(template: jinja2.Template, view: CommentView, source: Source) -> str:
    try:
        text = template.render(view=view, source=source, table=table(view), headings=HEADINGS)
    except MemoryError:
        raise
    except Exception as error:  # The user's own code: it may raise anything.
        raise unusable(f"{type(error).__name__}: {error}") from error
    # No text may begin an HTML comment: the comment's own marks are such.
    return re.sub(r"<(?=!--)", f"<{ZERO_WIDTH}", tidy(text))
