"""Make a record's texts harmless. In Markdown they cannot become markup, a mention, a reference,
a link or a comment. In a job's log they cannot become a command.

GitHub links mentions, references and addresses after Markdown is rendered, so a backslash does not
stop it; a zero-width space does.
"""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from markupsafe import Markup

from canary.errors import cut, printable

Shown = TypeVar("Shown")

ZERO_WIDTH = "\u200b"

NOT_PRINTED = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
    r"\U000e0000-\U000e007f]"
)
"""Control characters, changes of writing direction, and surrogates, which no file can hold. A
record's text must not control a terminal."""

LONGEST_TEXT = 2_000
"""Characters of one text in a view. The program's texts have a few hundred."""

COMMAND = re.compile(r"^\s*:(?=:)|#(?=#\[)", re.MULTILINE)
"""GitHub's runner reads these as commands in a job's log: `##[` anywhere, `::` at the start of a
line (actions/runner, ActionCommand.cs)."""

LINKED = re.compile(
    r"(?<=@)"  # mentions, mail, xmpp, commits of a user
    r"|(?<=#)(?=\d)|(?<=gh-)(?=\d)"  # issues
    r"|(?<=:)(?=//)|(?<=www)(?=\.)",  # addresses
    re.IGNORECASE,
)
"""Where a zero-width space breaks what GitHub links. What stands before does not matter, because a
link may begin after `_`, `*`, `~` or `(` too."""

COMMIT = re.compile(
    r"(?<![^\W_])(?:(?=\d*[a-f])|(?<=commit ))[0-9a-f]{7,40}(?![^\W_])", re.IGNORECASE
)
"""GitHub links a commit's hash, but not in a code span, where it can be copied unchanged. Digits
alone are a hash after the word `commit`."""

MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;"} | {mark: f"\\{mark}" for mark in "\\|`*_[]#~!$"})
"""What is markup anywhere in a line."""

BLOCK = re.compile(r"^(?:\d{1,9}(?=[.)](?: |$))|(?=[-+](?!\w)|>|=(?:=|$)|:-))")
"""The start of a text that would begin a list, a quote, a heading, a rule or a table; a backslash
follows it. Spaces and tabs are gone, and MARKUP has the other marks."""


def on_lines(view: Shown) -> Shown:
    """Return a view with each text on one line and cut to LONGEST_TEXT. No text can add a line
    or take minutes to escape. HTML of our templates stays as it is."""
    return cast(Shown, _on_lines(view))


def _on_lines(value: Any) -> Any:
    if isinstance(value, Markup):
        return value
    if isinstance(value, str):
        return printable(cut(value, LONGEST_TEXT))
    if isinstance(value, tuple):
        return tuple(map(_on_lines, value))
    if isinstance(value, list):
        return list(map(_on_lines, value))
    if isinstance(value, dict):
        return {_on_lines(key): _on_lines(inner) for key, inner in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        texts = {field.name: _on_lines(getattr(value, field.name)) for field in fields(value)}
        return replace(value, **texts)
    return value


def without_commands(text: str) -> str:
    """Return the text with its log commands broken."""
    return COMMAND.sub(rf"\g<0>{ZERO_WIDTH}", text)


def log_line(text: object) -> str:
    """Return a text as one line of a job's log, without commands."""
    return without_commands(_flat(text))


def _flat(text: object) -> str:
    return " ".join(NOT_PRINTED.sub(" ", str(text)).split())


def markdown_cell(text: object) -> str:
    """Return Markdown that shows the text unchanged, on one line or in a table's cell."""
    escaped = LINKED.sub(ZERO_WIDTH, _flat(text)).translate(MARKUP)
    return COMMIT.sub(r"`\g<0>`", BLOCK.sub(r"\g<0>\\", escaped))


def markdown_code(text: object) -> str:
    """Return a code span outside of tables; an empty string for an empty text."""
    flat = _flat(text).replace("`", "'").replace("<!--", f"<{ZERO_WIDTH}!--")
    return f"`{flat}`" if flat else ""


def markdown_code_cell(text: object) -> str:
    """Return a code span in a table, whose bars are escaped."""
    # A backslash before an escaped bar would undo the escape.
    code = re.sub(r"\\(?=\|)", f"\\\\{ZERO_WIDTH}", markdown_code(text))
    return code.replace("|", "\\|")
