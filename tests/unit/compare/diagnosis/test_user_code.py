"""How a loop's changed code is named: by file and function, once, with the line that git knows."""

from __future__ import annotations

import pytest

from canary.compare.diagnosis.source_changes import SourceChanges, parse_diff
from canary.compare.diagnosis.user_code import code_changes
from canary.record.exact import OwnCode
from canary.record.types import RunRecord
from tests.unit.comparing import record

MAIN = ("__main__.main", "train.py", 8)
STEP = ("__main__.main.<locals>.step", "train.py", 12)
FORWARD = ("__main__.Net.forward", "train.py", 20)
TOP = ("__main__.<module>", "train.py", 1)


def fact(function: tuple[str, str, int], digest: str) -> OwnCode:
    name, file, line = function
    return {"name": name, "file": file, "line": line, "sha256": digest}


def with_code(number: int, code: dict[str, OwnCode]) -> RunRecord:
    made = record(number)
    made.exact["evidence"] = {**made.exact.get("evidence", {}), "code": code}
    return made


def told(
    was: dict[str, OwnCode], new: dict[str, OwnCode], source: SourceChanges | None = None
) -> list[str]:
    changes = code_changes(with_code(1, was), with_code(2, new), source)
    return [change.sentence() for change in changes]


def test_top_level_code_is_named_by_its_file_and_has_no_line_one() -> None:
    was, new = {"loop[0]": fact(TOP, "a")}, {"loop[0]": fact(TOP, "b")}
    (change,) = code_changes(with_code(1, was), with_code(2, new))
    assert change.sentence() == "the code of train.py changed"
    assert (change.evidence().path, change.evidence().line) == ("train.py", None)


def test_a_function_is_named_once_without_the_code_around_it() -> None:
    roles = {"loop[0]": MAIN, "loop[1]": TOP, "loop calls main": MAIN}
    was = {role: fact(function, "a") for role, function in roles.items()}
    new = {role: fact(function, "b") for role, function in roles.items()}
    assert told(was, new) == ["function main of train.py (line 8) changed"]
    was, new = (
        {**side, "loop calls step": fact(STEP, digest)}
        for side, digest in zip((was, new), "ab", strict=True)
    )
    assert told(was, new) == ["function main.<locals>.step of train.py (line 12) changed"]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (TOP, "the code of train.py changed, first in line 9"),
        (MAIN, "function main of train.py changed, first in line 9"),
        (FORWARD, "function Net.forward of train.py (line 20) changed"),
    ],
)
def test_the_line_is_the_changed_one_where_git_knows_it(
    function: tuple[str, str, int], words: str
) -> None:
    source = parse_diff("+++ b/train.py\n@@ -9 +9 @@\n-x = 1\n+x = 2\n")
    was, new = {"loop[0]": fact(function, "a")}, {"loop[0]": fact(function, "b")}
    assert told(was, new, source) == [words]
