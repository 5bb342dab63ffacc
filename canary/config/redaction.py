"""Replace the secrets in a command or a text by `***`. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from canary.config.setting_names import is_secret

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
"""Tokens of a known form, and user and password in a URL, which end at its last `@`."""
KNOWN_HIDDEN = re.compile(
    rf"(?:\b(?:{FORMS}|A[KS]IA|AIza|eyJ|[Bb]earer\s+|(?i:{HEADER}))|{PLACES}|://){re.escape(HIDDEN)}"
)
QUOTED = r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\"[^"\\]*\\\""""
BARE = r"""[^\s;|&<>()'"$\\-](?:[^\s;|&<>()'"\\]|\\[^\s'"])*"""
QUOTE = re.compile(r"\\?[\"']")
VALUE = rf"{QUOTED}|-*{BARE}"
NEXT = rf"{QUOTED}|{BARE}|-{BARE}(?<!\s-\w)"
"""The word after an option: `-v` would be another option, `-value` is a value."""
NAME = r"(?<![\w.-])[-+~]*[A-Za-z_][\w.-]*"
CODE = "".join(
    rf"(?<!\b{word} )" for word in ("if", "elif", "while", "not", "and", "or", "in", "is", "lambda")
)
"""Python keywords before a name: the colon after that name begins a block."""
TYPES = r"(?:str|int|bytes|bool|float|None|Any|Optional|Union|list|dict|tuple|set)\b"
COMMON = r"(?:[\w-]+\.)*(?:pass|pat|bearer)\b"
"""Words that are often followed by a colon in plain text."""
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
"""Patterns of a name and of its value in a script: `NAME=value`, `--name value`, `"name": value` or
`['NAME'] = value`, `name: value`. A shell variable is not a value: it shows no secret."""
OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
ANOTHER = re.compile(r"--[A-Za-z][\w.-]*|-[A-Za-z]")
"""Another option: it cannot be the value of the option before it."""
ASSIGNED = re.compile(r"([-+~]*[A-Za-z_][\w./@-]*=)(.*)", re.DOTALL)


def hidden(command: Sequence[str]) -> list[str]:
    """Return the words with `***` for values of secret names and tokens of a known form. Only for
    records and messages: the program gets the original words."""
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
    """Return a script, code or a message with `***` for its secrets."""
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


def missing_secret(command: Sequence[str]) -> str | None:
    """Return the name of the first secret that was replaced by `***`, or None."""
    before = ""
    for word in command:
        if word == HIDDEN:
            return before if OPTION.fullmatch(before) else word
        for name, value in NAMED:
            for secret, found in _secrets(name, value, word):
                if found[0].strip("\\'\"") == HIDDEN:
                    return secret
        if KNOWN_HIDDEN.search(word):
            return "a secret"
        before = word
    return None


def _secrets(
    name: re.Pattern[str], value: re.Pattern[str], text: str
) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield each secret's name and the match of its value. Values of other names are searched too:
    they may contain a secret."""
    named = name.search(text)
    while named is not None:
        end = named.end()
        found = value.match(text, end) if is_secret(named["name"]) else None
        if found is not None:
            end = found.end()
            yield named["name"], found
        named = name.search(text, end)
