"""Finds where a difference may come from: changed code that ran, config keys, packages. Pure.

A line of code can matter only if it ran. So the lines that commits changed are intersected with the
lines that each side noted. Without commits, functions are compared by the hash of their code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from canary.compare.commands import setting_name
from canary.compare.diagnosis.changed_settings import setting_changes
from canary.compare.diagnosis.source_changes import FileChange, Hunk, SourceChanges
from canary.compare.diagnosis.suspects import RegressionCategory
from canary.compare.exact.changes import made_by_command, shown
from canary.compare.report import Difference, KeyChange, Place, Places
from canary.record.exact import Code, FileCode
from canary.record.line_ranges import runs_of
from canary.record.types import RunRecord

SETUP = "setup"
ORDER = (
    "data",
    "generation",
    "reward",
    "logprob",
    "advantage",
    "forward",
    "loss",
    "backward",
    "optimizer",
    "other",
    "logging",
    "checkpoint",
    "evaluation",
    SETUP,
)
"""The phases in the order of a step; `other` follows the optimizer in a loop. What ran before the
first step comes last, because all code did."""
LOSS = ("loss", "forward", "advantage", "logprob")
OF_STAGE = {
    "data": (SETUP, "data"),
    "batches": ("data", "generation", "reward", "other", SETUP),
    "model": (SETUP,),
    "rollout": ("generation", "reward", "advantage", "logprob", "data", "other", SETUP),
    "first_loss": (*LOSS, "reward", "generation", "data", SETUP),
    "first_gradient": ("backward", *LOSS, "optimizer"),
    "first_update": ("optimizer", "other", "backward", SETUP),
    "trajectory": ("optimizer", "other", "backward", *LOSS, "data"),
}
"""Phases that can cause the first difference of a stage, the likeliest first."""
IMPORTS = ("import ", "from ")
WORD = re.compile(r"[A-Za-z_]\w*")
MODULE = "<module>"
YAML = (".yaml", ".yml")
PROSE = (".md", ".rst", ".ipynb", ".lock")
OF_TOOLS = ("LICENSE", "Makefile", "Dockerfile", "pyproject.toml", "setup.cfg", "requirements")
SHOWN = 3
"""Places that an answer names."""
LONGEST = 80
"""Characters of a changed line in an answer."""


def changed_places(
    before: RunRecord,
    now: RunRecord,
    source: SourceChanges | None,
    differences: Sequence[Difference],
    config: Sequence[KeyChange],
    environment: Sequence[KeyChange],
) -> Places:
    """Return what changed between two runs and can have caused the first of `differences` that is
    of learning, the likeliest first."""
    was, new = before.exact.get("code", {}), now.exact.get("code", {})
    first = next((one for one in differences if one.learned), None)
    phases = (*OF_STAGE.get(first.stage if first else "", ()), *ORDER)
    code, others, idle = _of_files(source.files if source else (), was, new, phases)
    keys = [change for change in config if not change.cosmetic]
    packages = [_of_key("package", change) for change in environment if not change.cosmetic]
    unset = _unset_settings(before, now, config)
    made = made_by_command(before, now, keys)
    given = [change for change in keys if change.key not in made]
    if packages or not (code or others or given):
        given = keys
    if given:
        others = [place for place in others if not place.name.endswith(YAML)]
    elif differences and not (code or others or packages):
        given = unset
    every = [*code, *others, *packages, *(_of_key("config", change) for change in given)]
    names = {setting_name(key) for key in (*made, *(change.key for change in unset))}
    ordered = sorted(every, key=lambda place: _rank(place, phases, names))
    by_line = was.get("noted") == new.get("noted") == "lines"
    return Places(tuple(ordered), idle, known=bool(was and new), by_line=by_line)


def _of_files(
    files: Sequence[FileChange], was: Code, new: Code, phases: Sequence[str]
) -> tuple[list[Place], list[Place], int]:
    """Return the places in code, those in other files, and how many changes of code did not run."""
    hunks = [(file, hunk) for file in files for hunk in _with_moves(file.hunks)]
    if not hunks:
        return [*_functions_that_differ(was, new, phases)], [], 0
    found = [_of_hunk(file, hunk, was, new, phases) for file, hunk in hunks if _is_code(file)]
    others = [
        Place("file", file.path, hunk.line, removed=hunk.removed, added=hunk.added)
        for file, hunk in hunks
        if _may_be_read(file.path)
    ]
    code = [place for place in found if place is not None]
    return code, others, len(found) - len(code)


def _unset_settings(
    before: RunRecord, now: RunRecord, config: Sequence[KeyChange]
) -> list[KeyChange]:
    """Return the settings of the training that differ although no config sets them. Those of
    Python are the process's."""
    return [
        KeyChange(one.key, one.baseline, one.current)
        for one in setting_changes(config, before, now)
        if not one.in_config and one.category not in (None, RegressionCategory.HOST)
    ]


def _with_moves(hunks: Sequence[Hunk]) -> Iterator[Hunk]:
    """Yield the changed lines of a file; lines that only moved are one change."""
    gone = {_texts(one.removed): one for one in hunks if not one.added}
    came = {_texts(one.added): one for one in hunks if not one.removed}
    moved = {came[texts]: gone[texts] for texts in came.keys() & gone.keys()}
    for one in hunks:
        if one in moved:
            yield replace(one, old_line=moved[one].old_line, removed=moved[one].removed)
        elif one not in moved.values():
            yield one


def _texts(lines: Sequence[str]) -> tuple[str, ...]:
    return tuple(line.strip() for line in lines)


def _of_key(kind: Literal["config", "package"], change: KeyChange) -> Place:
    was, now = shown(change.baseline), shown(change.current)
    return Place(kind, change.key, removed=(was,), added=(now,))


def where(place: Place) -> str:
    """Return the place: `train.py:88 in collate`, a key or a package."""
    line = f":{place.line}" if place.line is not None else ""
    inside = f" in {place.function}" if place.function not in ("", MODULE) else ""
    return f"{place.name}{line}{inside}"


def sentence(place: Place) -> str:
    """Return the place and its first changed line."""
    text = text_of(place)
    return f"{where(place)}: {text}" if text else f"{where(place)} changed"


def text_of(place: Place) -> str:
    """Return its first changed line, or the values of a key; empty if unknown."""
    if place.kind in ("config", "package"):
        return f"{' '.join(place.removed)} -> {' '.join(place.added)}"
    was, now = ([line for line in _texts(lines) if line] for lines in (place.removed, place.added))
    for prefix, lines, other in (("", now, was), ("removed: ", was, now), ("moved: ", now, ())):
        for line in lines:
            if line not in other:
                return _cut(prefix + line)
    return ""


def only(places: Places) -> str:
    """Return what makes the first place stand out: `the only changed code that ran`, or empty."""
    if len(places.code) != 1 or len(places.ran) != 1:
        return ""
    if not places.idle:
        return "the only changed code"
    return "the only changed code that ran" if places.by_line else "the only changed code in use"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _is_code(file: FileChange) -> bool:
    return file.path.endswith(".py") or file.old_path.endswith(".py")


def _may_be_read(path: str) -> bool:
    """Whether a training may read the file: it is neither code nor prose nor of a tool."""
    name = path.rpartition("/")[2]
    hidden = any(part.startswith(".") for part in path.split("/"))
    return not (hidden or name.endswith((".py", *PROSE)) or name.startswith(OF_TOOLS))


def _rank(place: Place, phases: Sequence[str], settings: set[str]) -> tuple[int, int]:
    """Return the place's position: code of a step that fits, settings and lines that name one that
    differs, other code, imports."""
    position = phases.index(place.phase) if place.phase in phases else len(phases)
    lines = _texts((*place.removed, *place.added))
    imports = bool(lines) and all(line.startswith(IMPORTS) or not line for line in lines)
    words = {setting_name(word) for line in lines for word in WORD.findall(line)}
    names = not words.isdisjoint(settings)
    if place.kind == "code" and not imports and not _is_late(place.phase, phases):
        group = 0
    elif place.kind == "config" or (names and not imports):
        group = 1
    elif place.kind == "code" and not imports:
        group = 2
    else:
        group = {"file": 3, "package": 4}.get(place.kind, 5)
    return group, position


def _of_hunk(
    file: FileChange, hunk: Hunk, was: Code, new: Code, phases: Sequence[str]
) -> Place | None:
    """Return the place of changed lines if they ran and the code around them differs."""
    before = was.get("files", {}).get(file.old_path, {})
    after = new.get("files", {}).get(file.path, {})
    spans = ((after, hunk.line, len(hunk.added)), (before, hunk.old_line, len(hunk.removed)))
    ran = [
        (_owner(side, first), phase)
        for side, first, count in spans
        if count
        for phase in _phases(side, first, first + count - 1)
    ]
    if not any(_differs(name, before, after) for name, _ in ran):
        return None
    name, phase = min(ran, key=lambda one: _likelihood(one[1], phases))
    return Place("code", file.path, hunk.line, name, phase, hunk.removed, hunk.added)


def _likelihood(phase: str, phases: Sequence[str]) -> tuple[bool, int]:
    """Return the position of a phase."""
    return _is_late(phase, phases), phases.index(phase) if phase in phases else len(phases)


def _is_late(phase: str, phases: Sequence[str]) -> bool:
    """Whether this is `setup`, and a phase of a step says more: all but the initial model and the
    data set come from steps."""
    return phase == SETUP and phases[0] != SETUP


def _phases(side: FileCode, first: int, last: int) -> Iterator[str]:
    for phase, text in side.get("ran", {}).items():
        if any(start <= last and end >= first for start, end in runs_of(text)):
            yield phase


def _owner(side: FileCode, line: int) -> str:
    """Return the innermost function or class with the line."""
    found = [
        (first, name)
        for name, (first, last, _) in side.get("functions", {}).items()
        if name != MODULE and first <= line <= last
    ]
    return max(found)[1] if found else MODULE


def _differs(name: str, before: FileCode, after: FileCode) -> bool:
    return _digest(name, before) != _digest(name, after)


def _digest(name: str, side: FileCode) -> str | None:
    function = side.get("functions", {}).get(name)
    return function[2] if function else None


def _functions_that_differ(was: Code, new: Code, phases: Sequence[str]) -> Iterator[Place]:
    """Yield the functions that ran on both sides with other code, and the files that ran on one."""
    before, after = was.get("files", {}), new.get("files", {})
    if not (before and after):
        return
    for path in dict.fromkeys((*after, *before)):
        old, side = before.get(path, {}), after.get(path, {})
        names = [name for name in side.get("functions", {}) if name in old.get("functions", {})]
        changed = [name for name in names if _differs(name, old, side)]
        if not names:
            yield Place("code", path, None, MODULE, SETUP)
        for name in changed:
            first, last, _ = side["functions"][name]
            ran = [*_phases(side, first, last)]
            phase = min(ran, key=lambda one: _likelihood(one, phases), default=SETUP)
            yield Place("code", path, None if name == MODULE else first, name, phase)
