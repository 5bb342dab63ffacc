"""A command as it may be written down: what is secret in its words is `***`. Standard library."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from canary.config.secret_names import is_secret

HIDDEN = "***"
FORMS = r"hf_|gh[oprsu]_|github_pat_|glpat-|xox[abp]-|sk-"
PLACES = r"hooks\.slack\.com/services/|discord(?:app)?\.com/api/webhooks/"
SCHEME = r"(?:bearer|basic|token|digest|negotiate|apikey)\s+"
HEADER = rf"authorization[\\\"']*\s*[:=]\s*[\\\"']*(?:{SCHEME}|(?!{SCHEME}))"
KNOWN = (
    (re.compile(rf"\b({FORMS})[A-Za-z0-9_-]{{16,}}"), rf"\1{HIDDEN}"),
    (re.compile(r"\b(A[KS]IA)[A-Z0-9]{16,}"), rf"\1{HIDDEN}"),
    (re.compile(r"\b(AIza)[\w-]{30,}"), rf"\1{HIDDEN}"),
    (re.compile(r"\b(eyJ)[\w-]{6,}\.[\w-]{4,}(?:\.[\w-]*)?"), rf"\1{HIDDEN}"),
    (re.compile(rf"({PLACES})[^\s'\"*][^\s'\"]*"), rf"\1{HIDDEN}"),
    (re.compile(rf"\b({HEADER})[^\s\\'\"*][^\s\\'\"]*", re.IGNORECASE), rf"\1{HIDDEN}"),
    (re.compile(r"\b([Bb]earer\s+)[\w.~+/=-]{16,}"), rf"\1{HIDDEN}"),
    (re.compile(r"://[^/\s:'\"]*:[^/\s'\"]+@"), f"://{HIDDEN}@"),
)
"""Tokens by their form, and user and password within an address, which end at its last `@`."""
LOST = re.compile(
    rf"(?:\b(?:{FORMS}|A[KS]IA|AIza|eyJ|[Bb]earer\s+|(?i:{HEADER}))|{PLACES}|://){re.escape(HIDDEN)}"
)
QUOTED = r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\"[^"\\]*\\\""""
BARE = r"""[^\s;|&<>()'"$\\-](?:[^\s;|&<>()'"\\]|\\[^\s'"])*"""
QUOTE = re.compile(r"\\?[\"']")
VALUE = rf"{QUOTED}|-*{BARE}"
NEXT = rf"{QUOTED}|{BARE}|-{BARE}(?<!\s-\w)"
"""The word after an option: `-v` is another option, `-value` is none."""
NAME = r"(?<![\w.-])[-+~]*[A-Za-z_][\w.-]*"
CODE = "".join(
    rf"(?<!\b{word} )" for word in ("if", "elif", "while", "not", "and", "or", "in", "is", "lambda")
)
"""Words of Python before a name: the colon after it begins a block."""
TYPES = r"(?:str|int|bytes|bool|float|None|Any|Optional|Union|list|dict|tuple|set)\b"
COMMON = r"(?:[\w-]+\.)*(?:pass|pat|bearer)\b"
"""Words that stand before a colon in any text."""
NAMED = tuple(
    (re.compile(name), re.compile(value))
    for name, value in (
        (rf"(?P<name>{NAME})\s*=(?!=)\s*", VALUE),
        (r"(?P<name>(?<![\w.-])--?[A-Za-z][\w.-]*)\s+", NEXT),
        (rf"(?<=[\"'])(?P<name>{NAME})\\?[\"']\s*(?:\]\s*=(?!=)|:)\s*", VALUE),
        (
            rf"{CODE}(?<![\[\w.-])(?!{COMMON})(?P<name>{NAME})[ \t]*:(?![:/=])[ \t]*",
            rf"(?!{TYPES})(?:{VALUE})",
        ),
    )
)
"""What comes before a value and what a value is, within a script: `NAME=value`, `--name value`,
`"name": value` or `['NAME'] = value`, `name: value`. A variable is no secret itself."""
OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
ANOTHER = re.compile(r"--[A-Za-z][\w.-]*|-[A-Za-z]")
"""What cannot be the value of the option before it."""
ASSIGNED = re.compile(r"([-+~]*[A-Za-z_][\w./@-]*=)(.*)", re.DOTALL)


def hidden(command: Sequence[str]) -> list[str]:
    """The words, with `***` for each value whose name is a secret's, and for tokens that are known
    by their form. The program reads its own words, never these."""
    found: list[str] = []
    secret_next = False
    for word in command:
        assigned = ASSIGNED.fullmatch(word)
        is_value = secret_next and not ANOTHER.fullmatch(word)
        if is_value:
            found.append(HIDDEN)
        elif assigned and is_secret(assigned[1].removesuffix("=")):
            found.append(assigned[1] + (HIDDEN if assigned[2] else ""))
        else:
            found.append(hidden_text(word))
        secret_next = not is_value and OPTION.fullmatch(word) is not None and is_secret(word)
    return found


def hidden_text(text: str) -> str:
    """A shell's script, a program's text or a message, with `***` for its secrets."""
    for name, value in NAMED:
        parts, done = [], 0
        for _, found in _secrets(name, value, text):
            quote = QUOTE.match(found[0])
            ends = "" if quote is None else quote[0]
            parts += [text[done : found.start()], ends, HIDDEN, ends]
            done = found.end()
        text = "".join([*parts, text[done:]])
    for known, shown in KNOWN:
        text = known.sub(shown, text)
    return text


def lost(command: Sequence[str]) -> str | None:
    """The name of the first secret that a command lacks because it was written down; None where it
    lacks nothing."""
    before = ""
    for word in command:
        if word == HIDDEN:
            return before if OPTION.fullmatch(before) else word
        for name, value in NAMED:
            for whose, found in _secrets(name, value, word):
                if found[0].strip("\\'\"") == HIDDEN:
                    return whose
        if LOST.search(word):
            return "a secret"
        before = word
    return None


def _secrets(
    name: re.Pattern[str], value: re.Pattern[str], text: str
) -> Iterator[tuple[str, re.Match[str]]]:
    """Where a name of a secret has a value, and that name. The value of another name is looked
    through as well: it may hold a secret of its own."""
    named = name.search(text)
    while named is not None:
        end = named.end()
        found = value.match(text, end) if is_secret(named["name"]) else None
        if found is not None:
            end = found.end()
            yield named["name"], found
        named = name.search(text, end)
