"""Describes the user's code that ran until the look ended: lines by phase, functions by hash."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from canary.record.exact import Code, FileCode
from canary.record.line_ranges import ranges
from canary.training.attach.ran import AFTER, RAN, SETUP, RanCode, is_users_file

MODULE = "<module>"
"""The name of a file's code outside of functions and classes."""
LARGEST = 2_000_000
"""Bytes of a file of code; a longer one is generated and is not read."""
NO_CODE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Phases = Mapping[int, str]


@dataclass(frozen=True)
class Statement:
    """A statement, without the statements inside it."""

    first: int
    last: int
    owner: str
    """The function or class whose code it is."""


def ran_code(notes: RanCode = RAN) -> Code:
    """End the notes of this process and describe them. Files are named relative to the root of
    their git repository, otherwise to the working folder; files elsewhere are left out."""
    notes.end()
    whole = sys.version_info >= (3, 12) and notes.from_start
    loaded = {} if whole else dict.fromkeys(_loaded_files(), SETUP)
    files: dict[str, FileCode] = {}
    for file in dict.fromkeys((*notes.lines, *notes.calls, *loaded)):
        path = Path(file).absolute()
        name = _shown(path)
        if name is None:
            continue
        try:
            text = path.read_bytes() if path.stat().st_size <= LARGEST else b""
            tree = ast.parse(text)
        except (OSError, SyntaxError, ValueError):
            continue
        lines, calls = notes.lines.get(file, {}), notes.calls.get(file, {})
        found = _described(tree, lines, None if whole else calls)
        if found["ran"]:
            files[name] = found
    return {"noted": "lines" if whole else "functions", "files": files}


def _loaded_files() -> Iterator[str]:
    for module in [*sys.modules.values()]:
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py") and is_users_file(file):
            yield file


def _shown(path: Path) -> str | None:
    """Return the path in the repository or the folder of the user's code; None outside of both."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    folders = [
        Path.cwd(),
        *([Path(main).absolute().parent] if main and is_users_file(main) else []),
    ]
    for here in folders:
        root = next((up for up in (here, *here.parents) if (up / ".git").exists()), here)
        with contextlib.suppress(OSError, ValueError):
            return path.resolve().relative_to(root.resolve()).as_posix()
    return None


def _described(tree: ast.Module, lines: Phases, calls: Phases | None) -> FileCode:
    """Return what ran of a file. `calls`: phases of functions by their first line, where single
    lines are not known; a function that no step called counts as run before."""
    functions = {MODULE: (1, max((one.end_lineno or 1 for one in tree.body), default=1))}
    digests = {MODULE: _digest(tree)}
    statements: list[Statement] = []
    for owner, node in _scopes(tree):
        if isinstance(node, NO_CODE):
            functions[owner] = (node.lineno, node.end_lineno or node.lineno)
            digests[owner] = _digest(node)
        statements += _statements(node, owner)
    statements.sort(key=lambda one: one.first)
    if calls is None:
        phases = _of_lines(statements, lines)
    else:
        called = {name: calls.get(first) for name, (first, _) in functions.items()}
        phases = _of_calls(statements, lines, called)
    ran: dict[str, list[int]] = {}
    for statement, phase in phases.items():
        ran.setdefault(phase, []).extend(range(statement.first, statement.last + 1))
    names = {statement.owner for statement in phases}
    return {
        "ran": {phase: ranges(found) for phase, found in ran.items()},
        "functions": {
            name: (*span, digests[name]) for name, span in functions.items() if name in names
        },
    }


def _of_lines(statements: list[Statement], lines: Phases) -> dict[Statement, str]:
    """Return the phase of each statement of which a line ran; that of a step comes first."""
    starts = [one.first for one in statements]
    found: dict[Statement, str] = {}
    for line, phase in sorted(lines.items()):
        place = bisect_right(starts, line) - 1
        if place >= 0 and line <= statements[place].last:
            statement = statements[place]
            if found.get(statement, SETUP) == SETUP:
                found[statement] = phase
    return found


def _of_calls(
    statements: list[Statement], anchors: Phases, called: Mapping[str, str | None]
) -> dict[Statement, str]:
    """Return a phase for every statement. Those of a loop follow the lines that entered phases."""
    marks: dict[str, list[tuple[int, str]]] = {}
    for entering, entered in _of_lines(statements, anchors).items():
        marks.setdefault(entering.owner, []).append((entering.first, entered))
    found = {}
    for statement in statements:
        own = sorted(marks.get(statement.owner, []))
        before = [(line, entered) for line, entered in own if line <= statement.first]
        phase: str | None = called.get(statement.owner)
        if before:
            line, entered = before[-1]
            phase = entered if line == statement.first else AFTER.get(entered, "other")
        found[statement] = SETUP if phase is None or phase == "loop" else phase
    return found


def _scopes(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Yield the module and all functions and classes in it, with unique names."""
    seen: dict[str, int] = {}

    def inside(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, NO_CODE):
                name = f"{prefix}{child.name}"
                seen[name] = count = seen.get(name, 0) + 1
                yield (name if count == 1 else f"{name}#{count}"), child
                yield from inside(child, f"{name}.")
            else:
                yield from inside(child, prefix)

    yield MODULE, tree
    yield from inside(tree, "")


def _statements(scope: ast.AST, owner: str) -> Iterator[Statement]:
    """Yield the scope's own statements. Of one that holds others, only the lines before those."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, ast.stmt):
            inner = [
                one for one in ast.walk(child) if isinstance(one, ast.stmt) and one is not child
            ]
            first = min(
                (one.lineno for one in getattr(child, "decorator_list", [])), default=child.lineno
            )
            last = child.end_lineno or child.lineno
            if inner:
                last = max(first, min(one.lineno for one in inner) - 1)
            yield Statement(min(first, child.lineno), last, owner)
        if not isinstance(child, NO_CODE):
            yield from _statements(child, owner)


def _digest(scope: ast.AST) -> str:
    """Return a hash of the code, without comments, docstrings, and functions inside it."""
    digest = hashlib.sha256()

    def feed(node: ast.AST, top: bool = False) -> None:
        if isinstance(node, NO_CODE) and not top:
            digest.update(f"{type(node).__name__} {node.name}".encode())
            heads = [*node.decorator_list, *getattr(node, "bases", [])]
            arguments = getattr(node, "args", None)
            for head in (*heads, *([arguments] if arguments else [])):
                digest.update(ast.dump(head).encode())
            return
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return
        children = [*ast.iter_child_nodes(node)]
        if not any(isinstance(one, ast.stmt) for one in ast.walk(node) if one is not node):
            digest.update(ast.dump(node).encode())
            return
        digest.update(type(node).__name__.encode())
        for child in children:
            feed(child)

    feed(scope, top=True)
    return digest.hexdigest()[:16]
