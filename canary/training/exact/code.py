"""Describes the user's code that ran until the look ended: lines by phase, functions by hash."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from canary.record.exact import Code, FileCode
from canary.record.line_ranges import ranges
from canary.training.collectors.ran import (
    AFTER,
    OF_MODULE,
    RAN,
    SETUP,
    RanCode,
    is_users_file,
    loaded_files,
)

MODULE = "<module>"
"""The name of a file's code outside of functions and classes."""
LARGEST = 2_000_000
"""Bytes of a file of code; a longer one is generated and is not read."""
NO_CODE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
"""Statements whose inner ones are code of their own."""
Scope: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
PARTS = ("body", "orelse", "finalbody", "handlers", "cases")
"""Fields of a statement that hold statements, or what holds those."""
OF_PARENT = ("name", "decorator_list")
"""Fields of a function or class that belong to the code around it."""
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
    hidden = whole and _compiles()
    outside = 0
    loaded = {} if whole else dict.fromkeys((*loaded_files(), *notes.loaded))
    files: dict[str, FileCode] = {}
    for file in dict.fromkeys((*notes.lines, *notes.calls, *loaded)):
        path = Path(file).absolute()
        name = in_repository(path)
        lines, calls = notes.lines.get(file, {}), notes.calls.get(file, {})
        # RecursionError: some generated code is too deep to describe.
        with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError):
            if name is None:
                outside += 1
                continue
            if lines or calls:
                files[name] = _described(_parsed(path), lines, None if whole else calls, hidden)
            else:
                files[name] = _loaded(path, path.stat().st_mtime_ns)
    files = {name: found for name, found in files.items() if found["ran"]}
    noted: Code = {"noted": "lines" if whole and not hidden else "functions", "files": files}
    return noted | {"outside": outside} if outside else noted


def _compiles() -> bool:
    """Whether torch.compile or torch.jit.script took code: Python does not see it run."""
    dynamo, scripts = map(sys.modules.get, ("torch._dynamo.utils", "torch.jit._recursive"))
    graphs = dynamo is not None and dynamo.counters["stats"].get("unique_graphs", 0)
    return bool(graphs) or bool(scripts is not None and scripts.concrete_type_store.type_store)


def _parsed(path: Path) -> ast.Module:
    """Read a file of code. Raises OSError, SyntaxError or ValueError."""
    return ast.parse(path.read_bytes() if path.stat().st_size <= LARGEST else b"")


@functools.lru_cache(maxsize=512)
def _loaded(path: Path, _: int) -> FileCode:
    """Describe a file that was imported, and of which no step called anything. Kept, because a
    suite of tests may train often in one process."""
    return _described(_parsed(path), {}, {})


def in_repository(path: Path) -> str | None:
    """Return the path in the repository or the folder of the user's code; None outside of both."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    folders = [Path(main).absolute().parent] if main and is_users_file(main) else []
    with contextlib.suppress(OSError):  # The working folder may be gone.
        folders.insert(0, Path.cwd())
    for here in folders:
        root = next((up for up in (here, *here.parents) if (up / ".git").exists()), here)
        with contextlib.suppress(OSError, ValueError):
            return path.resolve().relative_to(root.resolve()).as_posix()
    return None


def _described(
    tree: ast.Module, lines: Phases, calls: Phases | None, hidden: bool = False
) -> FileCode:
    """Return what ran of a file. `calls`: phases of functions by their first line, where single
    lines are not known; a function that no step called counts as run before. So does one without a
    line, if code can run `hidden`."""
    functions = {MODULE: (1, max((one.end_lineno or 1 for one in tree.body), default=1))}
    digests = {MODULE: _digest(tree)}
    heads = {MODULE: range(0)}
    first_lines = {MODULE: OF_MODULE}
    statements: list[Statement] = []
    for scope, owner, statement in _statements(tree):
        statements.append(statement)
        if scope is not None and owner not in functions:
            functions[owner] = (scope.lineno, scope.end_lineno or scope.lineno)
            digests[owner] = _digest(scope)
            heads[owner] = range(scope.lineno, max(scope.lineno + 1, scope.body[0].lineno))
            first_lines[owner] = _first_line(scope)
    statements.sort(key=lambda one: one.first)
    if calls is None:
        phases = _of_lines(statements, lines)
        seen = {one.owner for one in phases} if hidden else {*first_lines}
        phases |= {one: SETUP for one in statements if one.owner not in seen}
    else:
        called = {name: calls.get(first) for name, first in first_lines.items()}
        phases = _of_calls(statements, lines, called)
    ran: dict[str, list[int]] = {}
    for statement, phase in phases.items():
        ran.setdefault(phase, []).extend(range(statement.first, statement.last + 1))
    entered: dict[str, str] = {}
    for statement in statements:
        if statement in phases:
            entered.setdefault(statement.owner, phases[statement])
    for name, phase in entered.items():  # Defaults of arguments matter when the function is called.
        if phase != SETUP:
            ran.setdefault(phase, []).extend(heads[name])
    described = {name: (*span, digests[name]) for name, span in functions.items()}
    idle = {name: one for name, one in described.items() if name not in entered}
    made: FileCode = {
        "ran": {phase: ranges(found) for phase, found in ran.items()},
        "functions": {name: one for name, one in described.items() if name in entered},
    }
    return made | {"idle": idle} if idle else made


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


def _statements(tree: ast.Module) -> Iterator[tuple[Scope | None, str, Statement]]:
    """Yield each statement with the function or class whose code it is, and that one's unique name.
    Of a statement that holds others, only the lines before those count."""
    seen: dict[str, int] = {}

    def of(
        body: Iterable[ast.stmt], scope: Scope | None, owner: str
    ) -> Iterator[tuple[Scope | None, str, Statement]]:
        for one in body:
            if _is_prose(one):
                continue
            inner = [*_inside(one)]
            first = _first_line(one)
            last = one.end_lineno or one.lineno
            if inner:
                last = max(first, min(each.lineno for each in inner) - 1)
            yield scope, owner, Statement(first, last, owner)
            for part in _branches(one):
                first = part.lineno if isinstance(part, ast.ExceptHandler) else part.pattern.lineno
                last = max(first, part.body[0].lineno - 1)
                yield scope, owner, Statement(first, last, owner)
            if isinstance(one, NO_CODE):
                name = one.name if scope is None else f"{owner}.{one.name}"
                seen[name] = count = seen.get(name, 0) + 1
                yield from of(inner, one, name if count == 1 else f"{name}#{count}")
            else:
                yield from of(inner, scope, owner)

    return of(tree.body, None, MODULE)


def _inside(statement: ast.stmt) -> Iterator[ast.stmt]:
    """Yield the statements directly inside another one."""
    for field in ("body", "orelse", "finalbody"):
        yield from getattr(statement, field, ())
    for part in _branches(statement):
        yield from part.body


def _branches(statement: ast.stmt) -> Iterator[ast.ExceptHandler | ast.match_case]:
    """Yield `except` and `case` of a statement: they have conditions of their own."""
    for field in ("handlers", "cases"):
        yield from getattr(statement, field, ())


def _first_line(statement: ast.stmt) -> int:
    """Return the first line of a statement, or of its decorators."""
    heads = [head.lineno for head in getattr(statement, "decorator_list", [])]
    return min((statement.lineno, *heads))


def _is_prose(node: ast.AST) -> bool:
    """Whether this is a docstring or another constant that nothing takes."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _digest(scope: ast.Module | Scope) -> str:
    """Return a hash of the code, without comments, docstrings, and the code of functions inside.
    Of those it holds names and decorators; a function holds its arguments, a class its bases."""
    digest = hashlib.sha256()

    def feed(nodes: Iterable[ast.AST]) -> None:
        for one in nodes:
            if _is_prose(one):
                continue
            digest.update(type(one).__name__.encode())
            for field, value in ast.iter_fields(one):
                if not isinstance(one, NO_CODE) or field in OF_PARENT:
                    feed_field(field, value)

    def feed_field(field: str, value: object) -> None:
        if value in (None, []):  # Versions of Python differ in such fields.
            return
        if field in PARTS and isinstance(value, list):
            digest.update(f"{field}(".encode())
            feed(value)
            digest.update(b")")
        else:
            digest.update(f"{field}:{_shape(value)}".encode("utf-8", "surrogatepass"))

    for field, value in ast.iter_fields(scope):
        if field not in OF_PARENT:
            feed_field(field, value)
    return digest.hexdigest()[:16]


def _shape(value: object) -> str:
    """Return expressions as text, like `ast.dump`, for any depth of them."""
    tops = value if isinstance(value, list) else [value]
    shapes = [_field(tops)]
    for top in tops:
        for node in ast.walk(top) if isinstance(top, ast.AST) else ():
            fields = [
                (name, held) for name, held in ast.iter_fields(node) if held not in (None, [])
            ]
            shapes.append(type(node).__name__)
            shapes += [f"{name}={_field(held)}" for name, held in fields]
    return " ".join(shapes)


def _field(value: object) -> str:
    if isinstance(value, list):
        return f"[{','.join(_field(one) for one in value)}]"
    return "*" if isinstance(value, ast.AST) else repr(value)
