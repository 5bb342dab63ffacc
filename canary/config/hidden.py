"""A command as it may be written down: what is secret in its words is `***`. Standard library."""

from __future__ import annotations

import re
from collections.abc import Sequence

from canary.config.places import is_secret

HIDDEN = "***"
FORMS = r"hf_|gh[oprsu]_|github_pat_|glpat-|xox[abp]-|sk-"
KNOWN = (
    (re.compile(rf"\b({FORMS})[A-Za-z0-9_-]{{16,}}"), rf"\1{HIDDEN}"),
    (re.compile(r"://[^/\s:@]+:[^/\s@]+@"), f"://{HIDDEN}@"),
)
"""Tokens by their form, and user and password within an address."""
LOST = re.compile(rf"(?:\b(?:{FORMS})|://){re.escape(HIDDEN)}")
VALUE = r"""(?P<value>'[^']*'|"(?:[^"\\]|\\.)*"|[^\s;|&<>()'"$-][^\s;|&<>()'"]*)"""
NAMED = (
    re.compile(r"(?P<name>(?<![\w.-])[-+~]*[A-Za-z_][\w.-]*)(?P<between>\s*=(?!=)\s*)" + VALUE),
    re.compile(r"(?P<name>(?<![\w.-])--?[A-Za-z][\w.-]*)(?P<between>\s+)" + VALUE),
)
"""Within a script: `NAME=value`, `--name=value`, `--name value`. A variable is no secret itself."""
OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
ASSIGNED = re.compile(r"([-+~]*[A-Za-z_][\w./@-]*=)(.*)", re.DOTALL)


def hidden(command: Sequence[str]) -> list[str]:
    """The words, with `***` for each value whose name is a secret's, and for tokens that are known
    by their form. The program reads its own words, never these."""
    found: list[str] = []
    secret_next = False
    for word in command:
        assigned = ASSIGNED.fullmatch(word)
        if secret_next and not OPTION.fullmatch(word):
            found.append(HIDDEN)
        elif assigned and is_secret(assigned[1].removesuffix("=")):
            found.append(assigned[1] + (HIDDEN if assigned[2] else ""))
        elif re.search(r"\s", word):
            found.append(_known(_script(word)))
        else:
            found.append(_known(word))
        secret_next = OPTION.fullmatch(word) is not None and is_secret(word)
    return found


def lost(command: Sequence[str]) -> str | None:
    """The name of the first secret that a command lacks because it was written down; None where it
    lacks nothing."""
    before = ""
    for word in command:
        if word == HIDDEN:
            return before if OPTION.fullmatch(before) else word
        for each in (found for pattern in NAMED for found in pattern.finditer(word)):
            if is_secret(each["name"]) and each["value"].strip("'\"") == HIDDEN:
                return each["name"]
        if LOST.search(word):
            return "a secret"
        before = word
    return None


def _known(word: str) -> str:
    for pattern, shown in KNOWN:
        word = pattern.sub(shown, word)
    return word


def _script(text: str) -> str:
    """A shell's script, or a program's text, with its secrets hidden."""

    def shown(found: re.Match[str]) -> str:
        if not is_secret(found["name"]):
            return found[0]
        quote = found["value"][0] if found["value"][0] in "'\"" else ""
        return f"{found['name']}{found['between']}{quote}{HIDDEN}{quote}"

    for pattern in NAMED:
        text = pattern.sub(shown, text)
    return text
