"""Finds where a difference may come from: changed code that ran, config keys, packages. Pure.

A line of code can matter only if it ran. So the lines that commits changed are intersected with the
lines that each side noted. Without commits, functions are compared by the hash of their code.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from canary.baseline.comparability import how_it_ended
from canary.compare.commands import setting_name
from canary.compare.diagnosis.changed_settings import setting_changes
from canary.compare.diagnosis.source_changes import FileChange, Hunk, SourceChanges
from canary.compare.diagnosis.suspects import RegressionCategory
from canary.compare.exact.changes import made_by_command, shown
from canary.compare.ran_lines import MODULE, RanLines, is_whole, not_run
from canary.compare.report import Difference, KeyChange, Place, Places, stripped
from canary.protocol.failure import split_place
from canary.record.exact import Code
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
YAML = (".yaml", ".yml")
PROSE = (".md", ".rst", ".ipynb", ".lock", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".pdf", ".ico")
OF_TOOLS = re.compile(
    r"(LICENSE|README|CHANGELOG|CONTRIBUTING|Makefile|Dockerfile).*|pyproject\.toml|setup\.cfg"
    r"|requirements.*\.(txt|in)"
)
EXITED = re.compile(r"^the command exited with code -?\d+: ")


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
    fitting = OF_STAGE.get(first.stage if first else "", ())
    phases = (*fitting, *ORDER)
    # Later phases of step 1 can change a later step, but not what comes before them in their own.
    at_once = first is not None and first.step in (None, 1)
    never = {*ORDER} - {*fitting, SETUP} if fitting and at_once else set()
    code, others, idle = _of_files(source.files if source else (), was, new, phases)
    keys = [change for change in config if not change.cosmetic]
    kept = [change for change in environment if not change.cosmetic]
    unset = _unset_settings(before, now, config)
    if now.status != "completed":  # It did not live to record them all.
        kept, unset = ([one for one in some if one.current is not None] for some in (kept, unset))
    packages = [_of_key("package", change) for change in kept]
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
    ordered = sorted(every, key=lambda place: _rank(place, phases, names, never))
    by_line = was.get("noted") == new.get("noted") == "lines"
    files = source.files if source else ()
    unseen = tuple(not_run(before, now, files))
    if not by_line and not is_whole(now):  # Functions that no step called count as run before.
        uncalled = {(one.name, one.function): one for one in code if one.phase == SETUP}
        unseen = tuple(one for one in uncalled.values() if not _goes_on(one, new))
    loaded = {*was.get("files", {}), *new.get("files", {})}
    unloaded = (
        one.path.endswith(".py") and loaded.isdisjoint((one.path, one.old_path)) for one in files
    )
    return Places(
        tuple(ordered),
        idle,
        known=bool(was and new),
        by_line=by_line,
        not_run=unseen,
        steps=_looked(before, now),
        hidden=any(unloaded) or bool(was.get("outside") or new.get("outside")),
        unread=tuple(
            one.path for one in files if not _is_code(one, was, new) and not _may_be_read(one.path)
        ),
    )


def _goes_on(place: Place, code: Code) -> bool:
    """Whether a place is in code of a module, or in a function that steps belong to."""
    file = code.get("files", {}).get(place.name, {})
    function = file.get("functions", {}).get(place.function)
    if place.function in ("", MODULE) or function is None:
        return True
    return {*RanLines(file).phases(*function[:2])} > {SETUP}


def _looked(before: RunRecord, now: RunRecord) -> int:
    """Return the steps that looks alone compared; 0 if a training went on after its look."""
    sides = (before, now)
    alone = all(side.config.get("exact") for side in sides)
    return min(side.exact.get("steps", 0) for side in sides) if alone else 0


def places_of_failure(
    record: RunRecord, before: RunRecord, source: SourceChanges | None, seen: Places
) -> Places:
    """Return the user's line at which a run failed, and the changed place: that line if it changed,
    else what `seen` knows to have run. If that is unknown, the change nearest to the line in its
    file. An error of syntax may be told of the line beside. `before`: a run of the baseline."""
    reason, found = split_place(how_it_ended(record))
    if found is None:
        return seen
    name, line = found["file"], int(found["line"])
    failed = Place("error", name, line, found["function"] or "", added=(EXITED.sub("", reason),))
    seen = replace(seen, failed=replace(failed, raised=found["raised"] or ""))
    hunks = [(file.path, one) for file in (source.files if source else ()) for one in file.hunks]
    # The name is relative to the training's folder, which may lie deeper than the repository.
    known = any(name in side.exact.get("code", {}).get("files", {}) for side in (before, record))
    near = [
        (max(one.line - 1 - line, line - one.line - max(len(one.added), 1), 0), path, one)
        for path, one in hunks
        if path == name or (not known and path.endswith(f"/{name}"))
    ]
    distance, path, hunk = min(near, key=lambda one: one[0], default=(0, "", None))
    if hunk is None or (seen.known and distance):
        return seen
    place = Place("code", path, hunk.line, removed=hunk.removed, added=hunk.added)
    return Places((place,), idle=len(hunks) - 1, failed=seen.failed)


def _of_files(
    files: Sequence[FileChange], was: Code, new: Code, phases: Sequence[str]
) -> tuple[list[Place], list[Place], int]:
    """Return the places in code, those in other files, and how many changes of code did not run."""
    found = [
        place
        for file in files
        if _is_code(file, was, new)
        for place in _of_file(file, was, new, phases)
    ]
    code = [place for place in found if place is not None]
    others = [
        Place("file", file.path, hunk.line, removed=hunk.removed, added=hunk.added)
        for file in files
        if _may_be_read(file.path) and not _is_code(file, was, new)
        for hunk in _with_moves(file.hunks)
        if not (file.path.endswith(YAML) and _is_comment(hunk))
    ]
    bits = (file.path for file in files if not file.hunks and _may_be_read(file.path))
    others += [Place("file", path) for path in bits]
    known = {name for file in files for name in (file.path, file.old_path)}
    idle = len(found) - len(code)
    return [*code, *_functions_that_differ(was, new, phases, known)], others, idle


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
    gone = {stripped(one.removed): one for one in hunks if not one.added}
    came = {stripped(one.added): one for one in hunks if not one.removed}
    moved = {came[texts]: gone[texts] for texts in came.keys() & gone.keys()}
    left = {*moved.values()}
    for one in hunks:
        if one in moved:
            yield replace(one, old_line=moved[one].old_line, removed=moved[one].removed)
        elif one not in left:
            yield one


def _of_key(kind: Literal["config", "package"], change: KeyChange) -> Place:
    was, now = shown(change.baseline), shown(change.current)
    return Place(kind, change.key, removed=(was,), added=(now,))


def _is_code(file: FileChange, was: Code, new: Code) -> bool:
    """Whether this is Python; a script may have a name without an ending."""
    names = file.path.endswith(".py") or file.old_path.endswith(".py")
    return names or file.path in new.get("files", {}) or file.old_path in was.get("files", {})


def _may_be_read(path: str) -> bool:
    """Whether a training may read the file: it is neither code nor prose nor of a tool."""
    name = path.rpartition("/")[2]
    hidden = any(part.startswith(".") for part in path.split("/"))
    return not (hidden or name.endswith((".py", *PROSE)) or OF_TOOLS.fullmatch(name))


def _is_comment(hunk: Hunk) -> bool:
    return all(line.lstrip()[:1] in ("", "#") for line in (*hunk.removed, *hunk.added))


def _rank(
    place: Place, phases: Sequence[str], settings: set[str], never: Container[str]
) -> tuple[int, int]:
    """Return the place's position. First code of a step that fits, then settings and lines that
    name one that differs, then the rest; code that ran too late, and imports, come last."""
    late, position = _likelihood(place.phase, phases)
    lines = stripped((*place.removed, *place.added))
    imports = bool(lines) and all(line.startswith(IMPORTS) or not line for line in lines)
    words = {setting_name(word) for line in lines for word in WORD.findall(line)}
    names = not words.isdisjoint(settings)
    if place.kind == "code" and not imports and place.phase in never:
        group = 5
    elif place.kind == "code" and not imports and not late:
        group = 0
    elif place.kind == "config" or (names and not imports):
        group = 1
    elif place.kind == "code" and not imports:
        group = 2
    else:
        group = {"file": 3, "package": 4}.get(place.kind, 6)
    return group, position


def _of_file(
    file: FileChange, was: Code, new: Code, phases: Sequence[str]
) -> Iterator[Place | None]:
    """Yield the place of each hunk, None for one that did not run."""
    before = RanLines(was.get("files", {}).get(file.old_path, {}))
    after = RanLines(new.get("files", {}).get(file.path, {}))
    for hunk in _with_moves(file.hunks):
        yield _of_hunk(file.path, hunk, before, after, phases)


def _of_hunk(
    path: str, hunk: Hunk, before: RanLines, after: RanLines, phases: Sequence[str]
) -> Place | None:
    """Return the likeliest changed line of a hunk that ran, if the code around it differs."""
    gone, came = ({*stripped(lines)} for lines in (hunk.removed, hunk.added))
    sides = ((after, hunk.line, hunk.added, gone), (before, hunk.old_line, hunk.removed, came))
    found: list[tuple[tuple[bool | int, ...], int, int, str, str]] = []
    for index, (side, first, texts, others) in enumerate(sides):
        for line, phase in side.lines(first, len(texts)):
            text = texts[line - first].strip()
            name = side.owner(line)
            if before.digest(name) != after.digest(name):
                late, position = _likelihood(phase, phases)
                order = (late, text in others, text.startswith(IMPORTS), position)
                found.append((order, index, line, name, phase))
    if not found:
        return None
    _, index, line, name, phase = min(found)
    skipped, shown_at = line - hunk.line, line
    added = hunk.added[skipped:]
    removed = hunk.removed[skipped if len(hunk.removed) == len(hunk.added) else 0 :]
    if index:  # The line is gone. New lines say more only if one of them ran.
        removed, shown_at = hunk.removed[line - hunk.old_line :], hunk.line
        known = after.digest(name) is not None  # otherwise it may not have been noted
        added = () if known and all(one[1] for one in found) else hunk.added
    return Place("code", path, shown_at, name, phase, removed, added)


def _likelihood(phase: str, phases: Sequence[str]) -> tuple[bool, int]:
    """Return whether a phase comes late, and its position. `setup` does if a phase of a step says
    more: all but the initial model and the dataset come from steps."""
    late = phase == SETUP and phases[0] != SETUP
    return late, phases.index(phase) if phase in phases else len(phases)


def _functions_that_differ(
    was: Code, new: Code, phases: Sequence[str], known: Container[str] = ()
) -> Iterator[Place]:
    """Yield the functions that ran on both sides with other code, and the files that ran on one.
    `known`: files whose changed lines are known. Of other files beside those, the commits may say
    nothing: they are ignored or not committed, of a submodule, or too long for a diff. They may
    also have other names now, so they are places only if they ran on both sides."""
    before, after = was.get("files", {}), new.get("files", {})
    if not (before and after):
        return
    for path in dict.fromkeys((*after, *before)):
        if path in known or (known and not (path in before and path in after)):
            continue
        old, side = before.get(path, {}), after.get(path, {})
        names = [name for name in side.get("functions", {}) if name in old.get("functions", {})]
        then, now = RanLines(old), RanLines(side)
        changed = [name for name in names if then.digest(name) != now.digest(name)]
        if not names:
            yield Place("code", path, None, MODULE, SETUP)
        for name in changed:
            first, last, _ = side["functions"][name]
            phase = min(
                now.phases(first, last), key=lambda one: _likelihood(one, phases), default=SETUP
            )
            yield Place("code", path, None if name == MODULE else first, name, phase)
