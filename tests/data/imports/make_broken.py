"""Makes the broken inputs in `broken/` and their `expectations.yaml`. Run by hand.

It needs tensorboard, wandb, mlflow, trackio, numpy and PyYAML, and no network:

    python tests/data/imports/make_broken.py

Binary inputs come from the real writers of each framework and are then damaged. Files from wandb,
mlflow and trackio differ from run to run (ids, times). The others are the same each time.
"""

# ruff: noqa: E501

from __future__ import annotations

import csv
import gzip
import importlib
import io
import json
import math
import os
import random
import shutil
import sqlite3
import struct
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent / "broken"
TIME = 1_700_000_000
NAN = float("nan")
INF = float("inf")
Cases = list[dict[str, Any]]
CASES: Cases = []
CONTROLS: Cases = []

# Words of which one must occur in what the user is told: by group, and the groups by name.
WORDS = {
    "empty": [
        "empty", "no data", "no rows", "no row", "no lines", "no line", "no records", "no record",
        "no entries", "no steps", "no step", "no metrics", "no metric", "no values", "no value",
        "no numbers", "no scalars", "no scalar", "nothing", "0 steps", "0 rows", "0 bytes",
        "contains no", "has no", "holds no", "without",
    ],
    "cut": [
        "cut", "truncated", "incomplete", "unfinished", "half", "partial", "ends early", "ended early",
        "unexpected end", "end of file", "last line", "last record", "last row", "torn", "not complete",
    ],
    "bad": [
        "corrupt", "damaged", "broken", "malformed", "invalid", "not valid", "unreadable",
        "cannot be read", "could not be read", "cannot read", "could not read", "crc", "checksum",
        "skipped", "left out", "not a ", "not json", "failed to", "parse",
    ],
    "not_finite": ["nan", "inf", "infinite", "infinity", "non-finite", "not finite", "nonfinite"],
    "repeated": [
        "repeat", "duplicate", "overlap", "more than once", "twice", "several times", "again",
        "same step", "resum", "restart", "rewritten", "overwrit", "conflict", "goes back", "went back",
        "superseded", "replaced",
    ],
    "order": [
        "order", "sorted", "backwards", "goes back", "went back", "not increasing", "decreas", "monoton",
    ],
    "several": [
        "several", "more than one", "two runs", "2 runs", "multiple", "which", "choose", "pick",
        "ambiguous", "other run", "only one",
    ],
    "encoding": ["encod", "utf", "decod", "latin", "not text", "binary", "nul", "not a text"],
    "number": [
        "not a number", "no number", "not numeric", "non-numeric", "nonnumeric", "text", "string",
        "skipped", "ignored", "dropped", "unreadable", "not numbers", "cannot be read",
        "could not be read", "converted", "left out",
    ],
    "bad_step": [
        "negative", "below 0", "less than 0", "fraction", "whole", "integer", "not a step",
        "invalid step", "bad step", "no step", "without a step", "without step", "missing step",
        "step is missing", "unusable", "left out", "skipped", "dropped", "ignored", "rounded", "large",
        "huge", "range", "too big", "overflow", "limit", "jump", "gap", "not a number",
    ],
    "one_step": [
        "one step", "1 step", "single", "only step", "only one", "only 1", "too few", "too short",
        "steps: 1", "step 0",
    ],
    "unknown": [
        "not a ", "not an ", "unknown", "not recogni", "unrecogni", "unsupported", "not supported",
        "cannot tell", "no such table", "no table", "format", "no run", "no metric",
        "nothing to import", "neither", "no known",
    ],
    "columns": [
        "column", "cells", "fields", "header", "delimiter", "separator", "ragged", "length",
        "semicolon", "width",
    ],
}  # fmt: skip
EMPTY, CUT, BAD, NOT_FINITE, REPEATED, ORDER, SEVERAL = (
    [f"<{name}>"] for name in ("empty", "cut", "bad", "not_finite", "repeated", "order", "several")
)
ENCODING, NUMBER, STEP, ONE, UNKNOWN, COLUMNS = (
    [f"<{name}>"] for name in ("encoding", "number", "bad_step", "one_step", "unknown", "columns")
)

ALWAYS = [
    "No traceback of Python reaches the user.",
    "What the user sees holds no raw control character of the input (escape, bell, backspace, NUL).",
    "A name of the input never breaks one message into several lines, nor makes it thousands long.",
    "The source is the same after the import: same bytes, same names, no file beside it.",
    "With `refused`, the exit code is not 0 and no record is left that could pass as a healthy run.",
    "With `told`, one clear line says what is wrong. It names the file, or the metric, or the count.",
    "An import of any input here ends within 60 seconds and uses less than 2 GB of memory.",
]

HEADER = """\
# What a user has the right to when an import meets a broken input. Written by make_broken.py.
#
# Every outcome here was decided before any import was run.
#
# inputs:   one entry per input.
#   path      from this folder.
#   format    what the input claims to be. null: a user would name none.
#   pattern   for console logs: the regular expression to use, with named groups.
#   broken    what is wrong with it.
#   outcome   refused: exit code not 0, and no record that could pass as healthy.
#             told: a record is made, and the output or the notes of the record mention it.
#             read: a harmless oddity. The record must be right; nothing has to be said.
#   also      other outcomes that are acceptable, for the same input. Facts hold for those
#             that make a record. Mentions hold for refused and told.
#   mentions  one of these must occur, in lower case, in what the user is told. <name> stands for
#             all words of that group below. How to match:
#               - a word of up to three letters must stand alone (inf is not in info);
#                 a longer one may be a part of a word;
#               - import a copy under a neutral name: names of inputs here hold such words;
#               - a mention that also occurs for the control of the same format proves nothing.
#   facts     what must hold for the record, where one is made:
#     steps        number of distinct steps with a value in the record, non-finite values included.
#     last_step    the greatest step.
#     last         value of a metric at its greatest step (to 4 digits; "nan" for not a number).
#     at           value of a metric at a step.
#     non_finite   how many values of a metric are NaN or infinite. They must be counted or kept,
#                  never be 0, never be a gap of which nobody is told.
#     missing      how many values of a metric are missing where others of the step are there.
#     never        values that a metric must not have: the sign of a wrong reading.
#     metrics      metrics that must be in the record.
#   unsure    why the outcome is open to argument.
#
# Metric names are those of the input. An import that renames metrics maps them first.
# Where steps repeat after a restart, the value that was written last holds.
#
# controls: healthy inputs. A record is made, and nothing of `mentions` of the groups cut, bad,
#           not_finite, repeated, order, encoding is said: each such word would be a false alarm.
# made_at_test_time: inputs that cannot be committed, with how to make them.
# always:            what holds for each input, whatever its outcome.
"""


def loss(step: int, job: int = 0) -> float:
    """A decaying loss; another job has another one."""
    return round(
        1.2 + 0.3 * job + 1.8 * math.exp(-step / 15) + 0.05 * math.sin(1.7 * step + job), 4
    )


def grad_norm(step: int) -> float:
    """A gradient norm."""
    return round(0.8 + 0.2 * math.cos(2.3 * step), 4)


def row(step: int, **other: Any) -> dict[str, Any]:
    """One step as most programs log it."""
    return {"step": step, "loss": loss(step), "grad_norm": grad_norm(step), **other}


def case(
    path: str,
    form: str | None,
    broken: str,
    outcome: str,
    mentions: Sequence[str] = (),
    *,
    also: Sequence[str] = (),
    facts: dict[str, Any] | None = None,
    pattern: str | None = None,
    unsure: str | None = None,
) -> None:
    """Notes what an input must lead to."""
    entry: dict[str, Any] = {"path": path, "format": form}
    if pattern:
        entry["pattern"] = pattern
    entry |= {"broken": broken, "outcome": outcome}
    if also:
        entry["also"] = list(also)
    if mentions:
        entry["mentions"] = list(dict.fromkeys(mentions))
    if facts:
        entry["facts"] = facts
    if unsure:
        entry["unsure"] = unsure
    if not (ROOT / path).exists():
        raise SystemExit(f"{path} was not made")
    (CONTROLS if path.startswith("healthy/") else CASES).append(entry)


def write(path: str, content: bytes | str) -> None:
    """Writes one input, as it is: no newline is changed."""
    target = ROOT / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content.encode() if isinstance(content, str) else content)


def lines(rows: Iterable[Any]) -> str:
    """Rows as JSON lines."""
    return "".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in rows)


def table(rows: Iterable[Sequence[Any]], **options: Any) -> str:
    """Rows as CSV."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n", **options).writerows(rows)
    return out.getvalue()


def columns(steps: Iterable[int]) -> list[list[Any]]:
    """A table of step, loss, grad_norm, lr."""
    return [["step", "loss", "grad_norm", "lr"], *([s, loss(s), grad_norm(s), 1e-4] for s in steps)]


def make_csv() -> None:
    """Tables."""
    write("csv/empty.csv", "")
    case("csv/empty.csv", "csv", "A file of 0 bytes.", "refused", EMPTY)
    write("csv/spaces.csv", "   \n\t\n \n\n")
    case("csv/spaces.csv", "csv", "Only spaces, tabs and newlines.", "refused", EMPTY)
    write("csv/header_only.csv", "step,loss,grad_norm,lr\n")
    case(
        "csv/header_only.csv",
        "csv",
        "A header and no row: the job died before its first log.",
        "refused",
        EMPTY,
    )

    rows: list[list[Any]] = [
        [str(cell).replace(".", ",") for cell in each] for each in columns(range(1, 21))
    ]
    write("csv/semicolon_decimal_comma.csv", table(rows, delimiter=";"))
    case(
        "csv/semicolon_decimal_comma.csv",
        "csv",
        "Semicolons between cells and commas in numbers, as a German spreadsheet saves it.",
        "refused",
        [*COLUMNS, *NUMBER, "comma"],
        also=["told"],
        facts={"last": {"loss": loss(20)}},
        unsure="A reader that turns 1,6643 into 1.6643 and says so is as good.",
    )
    write("csv/tabs.csv", table(columns(range(1, 21)), delimiter="\t"))
    case(
        "csv/tabs.csv",
        "csv",
        "Tabs between cells in a .csv.",
        "read",
        [*COLUMNS, "tab"],
        also=["told", "refused"],
        facts={"steps": 20, "last": {"loss": loss(20), "grad_norm": grad_norm(20)}},
    )

    rows = [
        *columns(range(1, 21)),
        ["step", "loss", "reward", "grad_norm", "lr"],
        *([s, loss(s), 0.5, grad_norm(s), 1e-4] for s in range(21, 31)),
    ]
    write("csv/header_changes.csv", table(rows))
    case(
        "csv/header_changes.csv",
        "csv",
        "A resumed job wrote a second header with one more column in the middle of the file.",
        "told",
        COLUMNS,
        also=["refused"],
        facts={"last": {"loss": loss(30)}, "never": {"grad_norm": [0.5], "lr": [grad_norm(30)]}},
    )
    rows = columns(range(1, 21))
    rows[7] = rows[7][:2]
    rows[11] = [*rows[11], 0.25, "x"]
    write("csv/ragged_rows.csv", table(rows))
    case(
        "csv/ragged_rows.csv",
        "csv",
        "Row 7 has 2 cells and row 11 has 6, under a header of 4.",
        "told",
        [*COLUMNS, *BAD, *CUT, "too many", "too few"],
        also=["refused"],
        facts={"last": {"loss": loss(20)}},
    )
    text = table(columns(range(1, 31)))
    write("csv/last_row_cut.csv", text[: text.rindex("\n30,") + 7])
    case(
        "csv/last_row_cut.csv",
        "csv",
        "The last row stops inside the loss: a full disk.",
        "told",
        [*CUT, *BAD, *COLUMNS],
        facts={"never": {"loss": [1.0, 1.4, 1.3, 1.5]}, "at": {"loss": {29: loss(29)}}},
    )

    write(
        "csv/bom_crlf.csv",
        b"\xef\xbb\xbf" + table(columns(range(1, 21))).replace("\n", "\r\n").encode(),
    )
    case(
        "csv/bom_crlf.csv",
        "csv",
        "A byte order mark before the header, and CRLF: saved by a spreadsheet.",
        "read",
        facts={"steps": 20, "last_step": 20, "last": {"loss": loss(20)}, "metrics": ["loss"]},
    )
    write("csv/utf16.csv", table(columns(range(1, 21))).encode("utf-16"))
    case(
        "csv/utf16.csv",
        "csv",
        "UTF-16, as a redirect in PowerShell writes it.",
        "refused",
        ENCODING,
        also=["told", "read"],
        facts={"steps": 20, "last": {"loss": loss(20)}},
    )
    rows = [["step", "loss", "schrittzeit_µs"], *([s, loss(s), 412000 + s] for s in range(1, 21))]
    write("csv/latin1.csv", table(rows).encode("latin-1"))
    case(
        "csv/latin1.csv",
        "csv",
        "A column name in latin-1, which is not valid UTF-8.",
        "told",
        ENCODING,
        also=["refused"],
        facts={"steps": 20, "last": {"loss": loss(20)}},
    )
    write("csv/gzip.csv", gzip.compress(table(columns(range(1, 21))).encode(), mtime=0))
    case(
        "csv/gzip.csv",
        "csv",
        "A gzip file with the name .csv.",
        "refused",
        [*ENCODING, "gzip", "compress"],
        also=["told", "read"],
        facts={"steps": 20, "last": {"loss": loss(20)}},
    )
    text = table(columns(range(1, 21)))
    write("csv/nul_bytes_at_end.csv", text.encode() + b"\0" * 600)
    case(
        "csv/nul_bytes_at_end.csv",
        "csv",
        "600 NUL bytes at the end: the power failed during a write.",
        "told",
        [*CUT, *BAD, *ENCODING],
        also=["refused"],
        facts={"steps": 20, "last": {"loss": loss(20)}},
    )

    rows = columns(range(1, 21))
    for at, word in ((4, "None"), (5, "null"), (6, "N/A"), (7, "-"), (8, "#REF!")):
        rows[at][1] = word
    write("csv/words_for_missing.csv", table(rows))
    case(
        "csv/words_for_missing.csv",
        "csv",
        "None, null, N/A, - and #REF! in place of five losses.",
        "told",
        [*NUMBER, "missing", "gap", "no value", "null", "none"],
        facts={
            "steps": 20,
            "missing": {"loss": 5},
            "never": {"loss": [0.0]},
            "last": {"loss": loss(20)},
        },
    )
    rows = columns(range(1, 31))
    for each in rows[19:]:
        each[1] = "nan"
    rows[18][2] = "inf"
    rows[17][2] = "-inf"
    write("csv/nan_inf.csv", table(rows))
    case(
        "csv/nan_inf.csv",
        "csv",
        "The loss is nan from step 19 to the end, grad_norm was inf before.",
        "told",
        NOT_FINITE,
        facts={
            "steps": 30,
            "non_finite": {"loss": 12, "grad_norm": 2},
            "at": {"loss": {18: loss(18)}},
            "last_step": 30,
        },
    )
    rows = [["step", "loss", "loss"], *([s, loss(s), loss(s, 1)] for s in range(1, 21))]
    write("csv/column_twice.csv", table(rows))
    case(
        "csv/column_twice.csv",
        "csv",
        "Two columns have the name loss, with other values.",
        "told",
        [*REPEATED, *COLUMNS, "two"],
        also=["refused"],
    )
    rows = [each[1:] for each in columns(range(1, 21))]
    write("csv/no_step_column.csv", table(rows))
    case(
        "csv/no_step_column.csv",
        "csv",
        "There is no column for the step.",
        "told",
        [
            "no step",
            "step column",
            "row number",
            "counted",
            "numbered",
            "without a step",
            "without step",
            "step is missing",
            "missing step",
            "rows as steps",
            "order of",
        ],
        also=["refused"],
        facts={"steps": 20},
    )
    rows = [["step", "loss"], *([f"{s:,}", loss(s // 100)] for s in range(100, 2100, 100))]
    write("csv/thousands_commas.csv", table(rows))
    case(
        "csv/thousands_commas.csv",
        "csv",
        'Steps from 1000 on have a comma: "1,000".',
        "told",
        [*NUMBER, *STEP, "comma", "thousand"],
        also=["refused"],
        facts={"at": {"loss": {900: loss(9)}}},
        unsure="Right steps without a word are right too. 9 of 20 steps without a word are not.",
    )
    rows = [["step", "loss"], *([f"epoch {s}", loss(s)] for s in range(1, 21))]
    write("csv/step_is_text.csv", table(rows))
    case(
        "csv/step_is_text.csv",
        "csv",
        'The step column holds words: "epoch 1".',
        "refused",
        [*STEP, *NUMBER],
        also=["told"],
    )
    text = table(columns(range(1, 31))).replace("\n9,", '\n9,"', 1)
    write("csv/open_quote.csv", text)
    case(
        "csv/open_quote.csv",
        "csv",
        "A quote opens in row 9 and never closes: it swallows 22 rows.",
        "told",
        [*CUT, *BAD, *COLUMNS, *NUMBER, "quot"],
        also=["refused"],
    )
    rows = columns([])
    for step in range(1, 26):
        rows.append([step, loss(step), grad_norm(step), 1e-4])
        rows.append([max(1, step - 3), loss(max(1, step - 3), 1), grad_norm(step), 1e-4])
    write("csv/two_jobs_one_file.csv", table(rows))
    case(
        "csv/two_jobs_one_file.csv",
        "csv",
        "Two jobs wrote into one file at the same time, row by row.",
        "told",
        [*REPEATED, *ORDER, "two jobs", "two runs", "mixed"],
        also=["refused"],
    )
    rows = columns(range(1, 31))
    rows += [[s, loss(s, 1), grad_norm(s), 1e-4] for s in range(21, 41)]
    write("csv/resumed.csv", table(rows))
    case(
        "csv/resumed.csv",
        "csv",
        "Steps 21 to 30 stand there twice, with other values: a resumed run.",
        "told",
        REPEATED,
        facts={
            "steps": 40,
            "last_step": 40,
            "last": {"loss": loss(40, 1)},
            "at": {"loss": {20: loss(20), 25: loss(25, 1)}},
        },
    )


def make_more_csv() -> None:
    """Tables that other programs write."""
    rows = columns([])
    rows += [[f"{s}.0", loss(s), grad_norm(s), "1e-4"] for s in range(1, 21)]
    write("csv/steps_as_floats.csv", table(rows))
    case(
        "csv/steps_as_floats.csv",
        "csv",
        "Steps are 1.0, 2.0 and so on, as pandas writes them after a gap.",
        "read",
        STEP,
        also=["told"],
        facts={"steps": 20, "last_step": 20, "last": {"loss": loss(20)}},
    )
    write("csv/comment_first.csv", "# run of 2024-01-01, seed 3\n" + table(columns(range(1, 21))))
    case(
        "csv/comment_first.csv",
        "csv",
        "A comment stands before the header.",
        "refused",
        [*COLUMNS, *EMPTY, *NUMBER, *BAD, "comment"],
        also=["told", "read"],
        facts={"steps": 20, "last": {"loss": loss(20)}},
    )
    write("csv/no_header.csv", table(columns(range(1, 21))[1:]))
    case(
        "csv/no_header.csv",
        "csv",
        "Numbers from the first line on: there is no header.",
        "refused",
        [*COLUMNS, *EMPTY, "name"],
        also=["told"],
        unsure="A record with metrics named 2.9335 and 0.7334 is worth nothing, even if it is told.",
    )


def make_jsonl() -> None:
    """JSON lines."""
    write("jsonl/empty.jsonl", "")
    case("jsonl/empty.jsonl", "jsonl", "A file of 0 bytes.", "refused", EMPTY)
    write("jsonl/only_newlines.jsonl", "\n\n   \n\n")
    case("jsonl/only_newlines.jsonl", "jsonl", "Only newlines and spaces.", "refused", EMPTY)
    text = lines(row(s) for s in range(1, 31))
    write("jsonl/last_line_cut.jsonl", text[:-31])
    case(
        "jsonl/last_line_cut.jsonl",
        "jsonl",
        "The last line stops inside the loss: the job was killed.",
        "told",
        [*CUT, *BAD],
        facts={"steps": 29, "last_step": 29, "last": {"loss": loss(29)}},
    )
    rows: list[Any] = [row(s) for s in range(1, 31)]
    first, second = json.dumps(row(12)), json.dumps(row(13))
    rows[11:13] = [first[:20] + second, first[20:]]
    write("jsonl/torn_in_the_middle.jsonl", lines(rows))
    case(
        "jsonl/torn_in_the_middle.jsonl",
        "jsonl",
        "Two processes wrote at once: two lines in the middle are torn.",
        "told",
        [*CUT, *BAD],
        also=["refused"],
        facts={"steps": 28, "last": {"loss": loss(30)}},
    )
    rows = [row(s) for s in range(1, 31)]
    rows[9]["loss"], rows[10]["loss"], rows[11]["grad_norm"] = INF, -INF, INF
    for each in rows[20:]:
        each["loss"] = NAN
    write("jsonl/nan_infinity.jsonl", lines(rows))
    case(
        "jsonl/nan_infinity.jsonl",
        "jsonl",
        "NaN, Infinity and -Infinity as Python writes them; NaN to the end.",
        "told",
        NOT_FINITE,
        facts={
            "steps": 30,
            "non_finite": {"loss": 12, "grad_norm": 1},
            "last": {"grad_norm": grad_norm(30)},
        },
    )
    write(
        "jsonl/all_nan.jsonl",
        lines({"step": s, "loss": NAN, "grad_norm": NAN} for s in range(1, 21)),
    )
    case(
        "jsonl/all_nan.jsonl",
        "jsonl",
        "Each value of each metric is NaN.",
        "told",
        NOT_FINITE,
        also=["refused"],
        facts={"non_finite": {"loss": 20, "grad_norm": 20}},
    )
    rows = [row(s) for s in range(1, 21)]
    for at in (4, 5, 12, 19):
        rows[at]["loss"] = None
    write("jsonl/null_values.jsonl", lines(rows))
    case(
        "jsonl/null_values.jsonl",
        "jsonl",
        "The loss is null at 4 of 20 steps, the last one included.",
        "told",
        [*NUMBER, *NOT_FINITE, "null", "missing", "gap", "no value", "none"],
        facts={"steps": 20, "missing": {"loss": 4}, "never": {"loss": [0.0]}},
    )
    write(
        "jsonl/numbers_as_strings.jsonl",
        lines({"step": s, "loss": str(loss(s))} for s in range(1, 21)),
    )
    case(
        "jsonl/numbers_as_strings.jsonl",
        "jsonl",
        'Each loss is a string: "1.6643".',
        "told",
        NUMBER,
        also=["refused", "read"],
        facts={"steps": 20, "last": {"loss": loss(20)}},
        unsure="Reading them as numbers without a word is right too, if all of them are.",
    )
    write(
        "jsonl/tensors_as_strings.jsonl",
        lines({"step": s, "loss": f"tensor({loss(s)}, device='cuda:0')"} for s in range(1, 21)),
    )
    case(
        "jsonl/tensors_as_strings.jsonl",
        "jsonl",
        "Each loss is the print of a tensor, so there is no number at all.",
        "refused",
        [*NUMBER, *EMPTY],
        also=["told"],
    )
    rows = [row(s) for s in range(1, 21)]
    rows[14]["loss"] = "diverged"
    rows[15]["loss"] = "diverged"
    write("jsonl/type_changes.jsonl", lines(rows))
    case(
        "jsonl/type_changes.jsonl",
        "jsonl",
        'The loss of steps 15 and 16 is the word "diverged".',
        "told",
        [*NUMBER, "diverged"],
        also=["refused"],
        facts={"missing": {"loss": 2}, "last": {"loss": loss(20)}},
    )
    text = lines(row(s) for s in range(1, 21)).replace(f'"loss": {loss(10)}', '"loss": 1e999')
    write("jsonl/number_too_large.jsonl", text.replace(f'"loss": {loss(11)}', '"loss": -1e999'))
    case(
        "jsonl/number_too_large.jsonl",
        "jsonl",
        "1e999 and -1e999: they become infinite when read.",
        "told",
        [*NOT_FINITE, "large", "range", "overflow"],
        facts={"non_finite": {"loss": 2}, "last": {"loss": loss(20)}},
    )
    text = lines(row(s) for s in range(1, 21)).replace(
        f'"loss": {loss(10)}', f'"loss": 1{"0" * 400}'
    )
    write(
        "jsonl/integer_too_large.jsonl",
        text.replace(f'"loss": {loss(11)}', f'"loss": {"9" * 5000}'),
    )
    case(
        "jsonl/integer_too_large.jsonl",
        "jsonl",
        "A whole number of 401 digits and one of 5000: no float holds them.",
        "told",
        [*NOT_FINITE, *NUMBER, *BAD, "large", "range", "overflow", "digits"],
        also=["refused"],
        facts={"last": {"loss": loss(20)}},
    )
    write("jsonl/binary.jsonl", random.Random(7).randbytes(4000))
    case(
        "jsonl/binary.jsonl",
        "jsonl",
        "Random bytes with the name .jsonl.",
        "refused",
        [*ENCODING, *BAD, "json"],
    )
    rows = [row(s) for s in range(1, 31)]
    for at in (7, 8, 20):
        del rows[at]["step"]
    write("jsonl/step_missing_in_some.jsonl", lines(rows))
    case(
        "jsonl/step_missing_in_some.jsonl",
        "jsonl",
        "3 of 30 lines have no step.",
        "told",
        STEP,
        also=["refused"],
        facts={"last_step": 30, "last": {"loss": loss(30)}},
    )
    order = list(range(1, 31))
    random.Random(3).shuffle(order)
    write("jsonl/out_of_order.jsonl", lines(row(s) for s in order))
    case(
        "jsonl/out_of_order.jsonl",
        "jsonl",
        "Steps are in no order: asynchronous workers wrote them.",
        "told",
        ORDER,
        also=["refused"],
        facts={"steps": 30, "last_step": 30, "last": {"loss": loss(30)}},
    )
    rows = [
        row(-1),
        row(0),
        {"step": 0.5, "loss": 2.5},
        {"step": 1.5, "loss": 2.4},
        *(row(s) for s in range(2, 21)),
    ]
    write("jsonl/step_negative_fractional.jsonl", lines(rows))
    case(
        "jsonl/step_negative_fractional.jsonl",
        "jsonl",
        "Steps -1, 0.5 and 1.5 among whole ones.",
        "told",
        STEP,
        also=["refused"],
        facts={"last_step": 20, "last": {"loss": loss(20)}},
    )
    write(
        "jsonl/step_is_epoch.jsonl",
        lines({"step": round(s / 10, 1), "loss": loss(s)} for s in range(1, 31)),
    )
    case(
        "jsonl/step_is_epoch.jsonl",
        "jsonl",
        "The step is an epoch, 0.1 to 3.0: rounding would merge steps.",
        "told",
        [*STEP, "epoch"],
        also=["refused"],
        facts={"last": {"loss": loss(30)}},
    )
    rows = [
        *(row(s) for s in range(1, 21)),
        {"step": 9007199254740993, "loss": 1.5},
        {"step": 10**20, "loss": 1.4},
        '{"step": 1e300, "loss": 1.3}',
    ]
    write("jsonl/step_huge.jsonl", lines(rows))
    case(
        "jsonl/step_huge.jsonl",
        "jsonl",
        "After step 20 come steps 9007199254740993, 1e20 and 1e300.",
        "told",
        STEP,
        also=["refused"],
        facts={"at": {"loss": {20: loss(20)}}},
    )
    rows = [{"step": TIME * 1000 + 1370 * s, "loss": loss(s)} for s in range(1, 21)]
    write("jsonl/step_is_time.jsonl", lines(rows))
    case(
        "jsonl/step_is_time.jsonl",
        "jsonl",
        "The step is a time in milliseconds.",
        "told",
        [*STEP, "time"],
        also=["read", "refused"],
        facts={"steps": 20, "last": {"loss": loss(20)}},
        unsure="The numbers rise and are whole; no rule says that a step is small.",
    )
    write(
        "jsonl/step_is_a_string.jsonl",
        lines({"step": str(s), "loss": loss(s)} for s in range(1, 21)),
    )
    case(
        "jsonl/step_is_a_string.jsonl",
        "jsonl",
        'Steps are strings: "10" sorts before "9".',
        "read",
        [*STEP, *NUMBER],
        also=["told", "refused"],
        facts={"steps": 20, "last_step": 20, "last": {"loss": loss(20)}},
    )
    write("jsonl/gap.jsonl", lines(row(s) for s in [*range(1, 21), *range(500, 521)]))
    case(
        "jsonl/gap.jsonl",
        "jsonl",
        "Steps 21 to 499 are missing: a part of the log was lost.",
        "told",
        ["gap", "missing", "jump", "lost", "hole", "not contiguous", "479"],
        also=["read"],
        facts={"steps": 41, "last_step": 520, "last": {"loss": loss(520)}},
        unsure="Some programs log rarely on purpose. Here every other step is there.",
    )
    write(
        "jsonl/resumed.jsonl",
        lines([*(row(s) for s in range(1, 31)), *(row(s, loss=loss(s, 1)) for s in range(21, 41))]),
    )
    case(
        "jsonl/resumed.jsonl",
        "jsonl",
        "Steps 21 to 30 stand there twice, with other values: a resumed run.",
        "told",
        REPEATED,
        facts={
            "steps": 40,
            "last": {"loss": loss(40, 1)},
            "at": {"loss": {20: loss(20), 25: loss(25, 1)}},
        },
    )
    write(
        "jsonl/restarted_shorter.jsonl",
        lines([*(row(s) for s in range(1, 31)), *(row(s, loss=loss(s, 1)) for s in range(1, 11))]),
    )
    case(
        "jsonl/restarted_shorter.jsonl",
        "jsonl",
        "A run of 30 steps, then a new one of 10 steps from step 1 in the same file.",
        "told",
        [*REPEATED, *ORDER, *SEVERAL],
        also=["refused"],
    )
    write("jsonl/always_step_0.jsonl", lines({"step": 0, "loss": loss(s)} for s in range(1, 31)))
    case(
        "jsonl/always_step_0.jsonl",
        "jsonl",
        "Each of 30 lines has step 0: the program forgot to count.",
        "told",
        [*REPEATED, *ONE],
        also=["refused"],
    )
    write("jsonl/one_step.jsonl", lines([row(1)]))
    case(
        "jsonl/one_step.jsonl",
        "jsonl",
        "One step and no more.",
        "told",
        ONE,
        also=["refused"],
        facts={"steps": 1, "last": {"loss": loss(1)}},
    )
    write(
        "jsonl/no_numbers.jsonl",
        lines(
            {"time": f"2024-01-01T00:00:{s:02}Z", "message": "waiting for GPU"} for s in range(20)
        ),
    )
    case(
        "jsonl/no_numbers.jsonl", "jsonl", "Messages, and no number.", "refused", [*EMPTY, *NUMBER]
    )
    rows = [row(s, per_gpu=[0.1, 0.2], ok=True, shapes={"a": {"b": [1, 2]}}) for s in range(1, 21)]
    write("jsonl/lists_and_booleans.jsonl", lines(rows))
    case(
        "jsonl/lists_and_booleans.jsonl",
        "jsonl",
        "Beside the loss stand lists, nested objects and true.",
        "told",
        [*NUMBER, "list", "per_gpu", "nested"],
        facts={"steps": 20, "last": {"loss": loss(20)}},
        unsure="true as 1.0 is acceptable; a list that vanishes without a word is not.",
    )
    write(
        "jsonl/pretty_printed.jsonl",
        "".join(json.dumps(row(s), indent=2) + "\n" for s in range(1, 21)),
    )
    case(
        "jsonl/pretty_printed.jsonl",
        "jsonl",
        "Each object spreads over several lines.",
        "refused",
        [*BAD, "json"],
        also=["read", "told"],
        facts={"steps": 20, "last": {"loss": loss(20)}},
    )
    write("jsonl/no_newlines.jsonl", "".join(json.dumps(row(s)) for s in range(1, 21)))
    case(
        "jsonl/no_newlines.jsonl",
        "jsonl",
        "20 objects one after the other, without a newline.",
        "refused",
        [*BAD, "json", "extra data"],
        also=["read", "told"],
        facts={"steps": 20, "last": {"loss": loss(20)}},
    )
    write(
        "jsonl/mixed_with_prints.jsonl",
        lines(
            [
                each
                for s in range(1, 21)
                for each in (row(s), f"WARNING: slow data loader at step {s}")
            ]
        ),
    )
    case(
        "jsonl/mixed_with_prints.jsonl",
        "jsonl",
        "A line of plain text stands after each JSON line.",
        "told",
        [*BAD, *NUMBER, "20 lines"],
        also=["refused"],
        facts={"steps": 20, "last": {"loss": loss(20)}},
    )
    text = lines(row(s) for s in range(1, 21))
    text = text.replace(f'"loss": {loss(10)}', f'"loss": {loss(10)}, "loss": 9.5')
    write("jsonl/key_twice.jsonl", text)
    case(
        "jsonl/key_twice.jsonl",
        "jsonl",
        "Line 10 has the key loss twice, with other values.",
        "told",
        [*REPEATED, "key", "two"],
        also=["refused", "read"],
        unsure="Common JSON readers keep the last one without a word.",
    )
    rows = [row(s) for s in range(1, 21)]
    deep = '{"step": 10, "loss": 2.0, "more": ' + '{"a":' * 2000 + "1" + "}" * 2000 + "}"
    write("jsonl/one_line_deep.jsonl", lines([*rows[:9], deep, *rows[10:]]))
    case(
        "jsonl/one_line_deep.jsonl",
        "jsonl",
        "Line 10 is nested 2000 levels deep.",
        "told",
        [*BAD, "deep", "nest", "recursion"],
        also=["refused", "read"],
        facts={"last": {"loss": loss(20)}},
    )
    names = [
        "\x1b[31mloss\x1b[0m",
        "loss\n[ok] all gates pass",
        "re\x00ward",
        "\x07bell",
        "a\u202eb",
        "\x1b]0;title\x07x",
    ]
    write(
        "jsonl/names_with_control_characters.jsonl",
        lines({"step": s, "loss": loss(s), **dict.fromkeys(names, 0.5)} for s in range(1, 21)),
    )
    case(
        "jsonl/names_with_control_characters.jsonl",
        "jsonl",
        "Metric names with colours of a terminal, newlines, NUL, a bell and a change of direction.",
        "told",
        [
            "name",
            "control",
            "character",
            "escape",
            "renamed",
            "clean",
            "unprintable",
            "not printable",
        ],
        also=["read", "refused"],
        facts={"steps": 20, "last": {"loss": loss(20)}},
        unsure="Names shown escaped need no word. A forged line in the output is the failure.",
    )
    write(
        "jsonl/name_10000.jsonl",
        lines([row(1, **{"x" * 10_000: 1.0}), *(row(s) for s in range(2, 21))]),
    )
    case(
        "jsonl/name_10000.jsonl",
        "jsonl",
        "A metric name of 10,000 characters.",
        "told",
        ["name", "long", "characters", "shortened"],
        also=["read", "refused"],
        facts={"steps": 20, "last": {"loss": loss(20)}},
    )
    text = lines(row(s) for s in range(1, 21)).replace('"grad_norm"', '"\\ud800norm"')
    write("jsonl/lone_surrogate.jsonl", text)
    case(
        "jsonl/lone_surrogate.jsonl",
        "jsonl",
        "A metric name with half a surrogate pair: it cannot be written as UTF-8.",
        "told",
        [*ENCODING, "surrogate", "name"],
        also=["read", "refused"],
        facts={"steps": 20, "last": {"loss": loss(20)}},
    )
    write(
        "jsonl/empty_names.jsonl",
        lines({"step": s, "": 0.5, " ": 0.25, "loss": loss(s)} for s in range(1, 21)),
    )
    case(
        "jsonl/empty_names.jsonl",
        "jsonl",
        "Metric names that are empty or a space.",
        "told",
        ["name", "empty", "blank"],
        also=["read"],
        facts={"steps": 20, "last": {"loss": loss(20)}},
        unsure="Kept under a name that one can see is fine too.",
    )
    rows = [row(s, Loss=loss(s, 1), LOSS=loss(s, 2)) for s in range(1, 21)]
    write("jsonl/names_differ_by_case.jsonl", lines(rows))
    case(
        "jsonl/names_differ_by_case.jsonl",
        "jsonl",
        "loss, Loss and LOSS are three metrics with other values.",
        "read",
        ["loss"],
        also=["told", "refused"],
        facts={"steps": 20, "last": {"loss": loss(20), "Loss": loss(20, 1), "LOSS": loss(20, 2)}},
    )
    write("jsonl/rows_are_lists.jsonl", lines([s, loss(s)] for s in range(1, 21)))
    case(
        "jsonl/rows_are_lists.jsonl",
        "jsonl",
        "Each line is a list without names.",
        "refused",
        [*BAD, *EMPTY, "list", "array", "object"],
    )


def make_more_jsonl() -> None:
    """JSON lines: encodings and the first step."""
    good = lines(row(s) for s in range(1, 21))
    write("jsonl/bom_crlf.jsonl", b"\xef\xbb\xbf" + good.replace("\n", "\r\n").encode())
    case(
        "jsonl/bom_crlf.jsonl",
        "jsonl",
        "A byte order mark before the first line, and CRLF.",
        "read",
        [*ENCODING, *BAD],
        also=["told"],
        facts={"steps": 20, "last": {"loss": loss(20)}},
    )
    text = lines(row(s) for s in range(1, 21)).replace(
        '"step": 10,', '"step": 10, "note": "gr\u00f6\u00dfer",'
    )
    write("jsonl/latin1.jsonl", text.encode("latin-1"))
    case(
        "jsonl/latin1.jsonl",
        "jsonl",
        "One line has a note in latin-1, which is not valid UTF-8.",
        "told",
        [*ENCODING, *BAD],
        also=["read", "refused"],
        facts={"last": {"loss": loss(20)}},
        unsure="If the numbers of that line are kept, nothing of value was lost.",
    )
    write("jsonl/nul_bytes_at_end.jsonl", good.encode() + b"\0" * 700)
    case(
        "jsonl/nul_bytes_at_end.jsonl",
        "jsonl",
        "700 NUL bytes at the end: the power failed during a write.",
        "told",
        [*CUT, *BAD, *ENCODING],
        also=["refused"],
        facts={"steps": 20, "last": {"loss": loss(20)}},
    )
    write(
        "jsonl/nul_bytes_in_the_middle.jsonl",
        lines(row(s) for s in range(1, 11)).encode()
        + b"\0" * 300
        + lines(row(s) for s in range(11, 21)).encode(),
    )
    case(
        "jsonl/nul_bytes_in_the_middle.jsonl",
        "jsonl",
        "300 NUL bytes before the line of step 11: a log that was cut while its program went on to write.",
        "told",
        [*CUT, *BAD, *ENCODING],
        also=["refused"],
        facts={"last": {"loss": loss(20)}},
    )
    write(
        "jsonl/only_step_0.jsonl",
        lines([{"step": 0, "eval_loss": 2.9}, {"step": 0, "loss": loss(0)}]),
    )
    case(
        "jsonl/only_step_0.jsonl",
        "jsonl",
        "Values at step 0 and no other: the job died in its first step.",
        "told",
        ONE,
        also=["refused"],
        facts={"steps": 1, "last_step": 0, "last": {"loss": loss(0)}},
    )


def make_json() -> None:
    """JSON documents."""
    rows = [row(s) for s in range(1, 31)]
    text = json.dumps(rows, indent=1)
    write("json/truncated.json", text[: len(text) * 2 // 3])
    case(
        "json/truncated.json",
        "json",
        "The document stops after two thirds.",
        "refused",
        [*CUT, *BAD, "json"],
        also=["told"],
    )
    write("json/array_of_arrays.json", json.dumps([[s, loss(s)] for s in range(1, 21)]))
    case(
        "json/array_of_arrays.json",
        "json",
        "Rows without names: nobody knows which number is which.",
        "refused",
        [*BAD, *EMPTY, "list", "array", "object", "name"],
    )
    for name, content in (
        ("number", "42"),
        ("empty_object", "{}"),
        ("empty_array", "[]"),
        ("null", "null"),
    ):
        write(f"json/{name}.json", content + "\n")
        case(
            f"json/{name}.json",
            "json",
            f"The document is {content}.",
            "refused",
            [*EMPTY, *BAD, "object", "list", "array"],
        )
    write(
        "json/columns_of_unequal_length.json",
        json.dumps({"step": list(range(1, 31)), "loss": [loss(s) for s in range(1, 27)]}),
    )
    case(
        "json/columns_of_unequal_length.json",
        "json",
        "30 steps and 26 losses.",
        "told",
        ["length", "unequal", "missing", "26", "shorter", "differ", "short"],
        also=["refused"],
    )
    write("json/deep.json", "[" * 3000 + "]" * 3000)
    case(
        "json/deep.json",
        "json",
        "Lists nested 3000 levels deep.",
        "refused",
        [*BAD, *EMPTY, "deep", "nest", "recursion"],
    )
    write("json/two_documents.json", json.dumps(rows[:20]) + "\n" + json.dumps(rows[20:]) + "\n")
    case(
        "json/two_documents.json",
        "json",
        "Two documents in one file: a resumed job appended.",
        "refused",
        [*BAD, "extra data", "two", "more than one", "json", "second"],
        also=["told", "read"],
        facts={"steps": 30, "last": {"loss": loss(30)}},
    )
    for at in (20, 21, 22):
        rows[at]["loss"] = "NaN"
    rows[23]["loss"] = "Infinity"
    write("json/nan_as_strings.json", json.dumps(rows))
    case(
        "json/nan_as_strings.json",
        "json",
        'Losses "NaN" and "Infinity" as strings, at 4 steps.',
        "told",
        [*NOT_FINITE, *NUMBER],
        facts={"steps": 30, "last": {"loss": loss(30)}, "never": {"loss": [0.0]}},
    )
    write(
        "json/web_page.json",
        "<!DOCTYPE html>\n<html><head><title>Sign in</title></head>"
        "<body>You need to sign in to see this file.</body></html>\n",
    )
    case(
        "json/web_page.json",
        "json",
        "A page that asks to sign in, saved by a download as .json.",
        "refused",
        [*BAD, "json", "html"],
    )


def make_trainer_state() -> None:
    """States of the Hugging Face trainer."""

    def state(history: Any, **other: Any) -> str:
        whole = {
            "best_metric": None,
            "epoch": 1.0,
            "global_step": 20,
            "is_hyper_param_search": False,
            "is_local_process_zero": True,
            "is_world_process_zero": True,
            "log_history": history,
            "logging_steps": 1,
            "max_steps": 20,
            "num_train_epochs": 1,
            "save_steps": 10,
            "total_flos": 0.0,
            "train_batch_size": 4,
            "trial_name": None,
            "trial_params": None,
        }
        return json.dumps({**whole, **other}, indent=2)

    def entry(step: int, job: int = 0) -> dict[str, Any]:
        return {
            "epoch": step / 20,
            "grad_norm": grad_norm(step),
            "learning_rate": 1e-4,
            "loss": loss(step, job),
            "step": step,
        }

    def put(name: str, content: str | bytes) -> str:
        write(f"trainer_state/{name}/trainer_state.json", content)
        return f"trainer_state/{name}/trainer_state.json"

    whole = [entry(s) for s in range(1, 21)]
    form = "trainer_state"
    case(
        put("empty_log_history", state([], global_step=0)),
        form,
        "log_history is empty.",
        "refused",
        [*EMPTY, "log_history"],
    )
    without = json.loads(state([]))
    del without["log_history"]
    case(
        put("no_log_history", json.dumps(without)),
        form,
        "log_history is not there.",
        "refused",
        [*EMPTY, "log_history", "missing"],
    )
    case(
        put("log_history_is_null", state(None)),
        form,
        "log_history is null.",
        "refused",
        [*EMPTY, "log_history", "null", "none"],
    )
    text = state(whole)
    case(
        put("cut", text[: len(text) // 2]),
        form,
        "Half of the file: the disk was full during a checkpoint.",
        "refused",
        [*CUT, *BAD, "json"],
        also=["told"],
    )
    rows = [dict(each) for each in whole]
    for each in rows[12:]:
        each |= {"loss": 0.0, "grad_norm": NAN}
    case(
        put("loss_0_grad_norm_nan", state(rows)),
        form,
        "From step 13 on grad_norm is NaN and the loss is 0.0: the trainer logs a NaN loss as 0.",
        "told",
        NOT_FINITE,
        facts={"steps": 20, "non_finite": {"grad_norm": 8}},
    )
    summary = {
        "epoch": 1.0,
        "step": 20,
        "total_flos": 0.0,
        "train_loss": 1.7,
        "train_runtime": 33.1,
        "train_samples_per_second": 2.4,
        "train_steps_per_second": 0.6,
    }
    case(
        put("only_the_summary", state([summary])),
        form,
        "log_history holds only the summary of the end: logging_steps was larger than the run.",
        "told",
        [*ONE, *EMPTY, "summary", "no loss"],
        also=["refused"],
    )
    rows = [*(entry(s) for s in range(1, 16)), *(entry(s, 1) for s in range(11, 21))]
    case(
        put("resumed", state(rows)),
        form,
        "Steps 11 to 15 stand there twice, with other values.",
        "told",
        REPEATED,
        facts={"steps": 20, "last": {"loss": loss(20, 1)}, "at": {"loss": {12: loss(12, 1)}}},
    )
    case(
        put("stopped_early", state(whole, max_steps=500, num_train_epochs=25)),
        form,
        "The run has 20 of 500 steps: a checkpoint of a job that died.",
        "told",
        [
            "500",
            "stopped",
            "unfinished",
            "not finished",
            "incomplete",
            "early",
            "of max_steps",
            "max_steps",
        ],
        also=["read"],
        facts={"steps": 20, "last": {"loss": loss(20)}},
        unsure="A checkpoint from the middle of a run is no fault by itself.",
    )
    odd: list[Any] = [*whole, None, "saved", {"loss": 1.0}, {"step": 21, "loss": {"a": 1}}]
    case(
        put("odd_entries", state(odd)),
        form,
        "log_history also holds null, a word, an entry without step and a loss that is an object.",
        "told",
        [*BAD, *NUMBER, *STEP, "entr"],
        also=["refused"],
    )
    pointer = (
        "version https://git-lfs.github.com/spec/v1\noid sha256:" + "ab" * 32 + "\nsize 48213\n"
    )
    case(
        put("git_lfs_pointer", pointer),
        form,
        "A pointer of Git LFS in place of the file: it was never fetched.",
        "refused",
        [*BAD, "lfs", "pointer", "json"],
    )


def make_tensorboard() -> None:
    """Event files, by the writer of TensorBoard."""
    event_pb2 = importlib.import_module("tensorboard.compat.proto.event_pb2")
    summary_pb2 = importlib.import_module("tensorboard.compat.proto.summary_pb2")
    tensor_util = importlib.import_module("tensorboard.util.tensor_util")
    record_writer = importlib.import_module("tensorboard.summary.writer.record_writer")
    form = "tensorboard"
    name = f"events.out.tfevents.{TIME}.node1.17.0"

    def event(step: int, *values: Any, after: float = 0.0) -> bytes:
        made = event_pb2.Event(wall_time=TIME + step + after, step=step)
        made.summary.value.extend(values)
        return bytes(made.SerializeToString())

    def scalar(tag: str, value: float) -> Any:
        return summary_pb2.Summary.Value(tag=tag, simple_value=value)

    def tensor(tag: str, value: Any, plugin: str) -> Any:
        made = summary_pb2.Summary.Value(tag=tag, tensor=tensor_util.make_tensor_proto(value))
        made.metadata.plugin_data.plugin_name = plugin
        return made

    def pack(events: Iterable[bytes], header: bool = True) -> list[bytes]:
        """Each record as bytes of the file."""
        first = event_pb2.Event(wall_time=TIME, file_version="brain.Event:2").SerializeToString()
        records = []
        for each in [*([first] if header else []), *events]:
            out = io.BytesIO()
            record_writer.RecordWriter(out).write(each)
            records.append(out.getvalue())
        return records

    def put(folder: str, content: Iterable[bytes], file: str = name) -> str:
        write(f"tensorboard/{folder}/{file}", b"".join(content))
        return f"tensorboard/{folder}"

    def run(steps: Iterable[int], job: int = 0, after: float = 0.0) -> list[bytes]:
        """As torch writes it: one event per value."""
        return [
            event(s, scalar(tag, value), after=after)
            for s in steps
            for tag, value in (("train/loss", loss(s, job)), ("train/grad_norm", grad_norm(s)))
        ]

    case(put("zero_bytes", []), form, "The event file has 0 bytes.", "refused", EMPTY)
    case(
        put("header_only", pack([])),
        form,
        "The event file holds its version and no event.",
        "refused",
        EMPTY,
    )
    records = pack(run(range(1, 31)))
    whole = b"".join(records)
    cut = len(b"".join(records[:41])) + 20
    case(
        put("cut", [whole[:cut]]),
        form,
        "The event file stops inside a record, after 20 whole steps.",
        "told",
        [*CUT, *BAD],
        facts={"steps": 20, "last": {"train/loss": loss(20)}},
    )
    damaged = bytearray(whole)
    damaged[len(b"".join(records[:31])) + 12 + 15] ^= 0xFF
    case(
        put("bad_checksum", [bytes(damaged)]),
        form,
        "One byte of the loss of step 16 is wrong, so its checksum does not fit. Steps 1 to 15 are whole.",
        "told",
        [*BAD, *CUT],
        also=["refused"],
        facts={"at": {"train/loss": {15: loss(15)}}},
    )
    damaged = bytearray(whole)
    damaged[len(b"".join(records[:31])) + 1] ^= 0xFF
    case(
        put("bad_length", [bytes(damaged)]),
        form,
        "The length of a record in the middle is wrong: nothing after step 15 can be found.",
        "told",
        [*BAD, *CUT],
        also=["refused"],
        facts={"steps": 15, "last": {"train/loss": loss(15)}},
    )
    case(
        put("nul_bytes_at_end", [whole, b"\0" * 900]),
        form,
        "900 NUL bytes after 30 whole steps: the disk was full.",
        "told",
        [*BAD, *CUT, "nul", "zero"],
        also=["refused"],
        facts={"steps": 30, "last": {"train/loss": loss(30)}},
    )
    put("resumed", pack(run(range(1, 31))))
    case(
        put(
            "resumed",
            pack(run(range(21, 41), job=1, after=500)),
            f"events.out.tfevents.{TIME + 521}.node2.17.0",
        ),
        form,
        "Two event files of a resumed run: steps 21 to 30 are in both, with other values.",
        "told",
        REPEATED,
        facts={
            "steps": 40,
            "last": {"train/loss": loss(40, 1)},
            "at": {"train/loss": {20: loss(20), 25: loss(25, 1)}},
        },
    )
    put("two_ranks", pack(run(range(1, 21))))
    case(
        put("two_ranks", pack(run(range(1, 21), job=1)), f"events.out.tfevents.{TIME}.node1.18.0"),
        form,
        "Two processes logged the same steps at the same time into one folder.",
        "told",
        [*REPEATED, *SEVERAL, "two"],
        also=["refused"],
        facts={"steps": 20},
    )
    put("two_runs", pack(run(range(1, 21))), f"lr_1e-4/{name}")
    case(
        put("two_runs", pack(run(range(1, 31), job=1)), f"lr_3e-4/{name}"),
        form,
        "A folder of two runs, each in a folder of its own.",
        "refused",
        SEVERAL,
        also=["told"],
        unsure="told is good only if it says which run was read.",
    )
    case(
        put("only_text", pack(event(s, tensor("notes", [b"hello"], "text")) for s in range(5))),
        form,
        "Only text in the event file.",
        "refused",
        EMPTY,
    )
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in (
            (b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)),
            (b"IDAT", zlib.compress(b"\0\x7f")),
            (b"IEND", b""),
        )
    )
    image = summary_pb2.Summary.Value(
        tag="samples",
        image=summary_pb2.Summary.Image(height=1, width=1, colorspace=1, encoded_image_string=png),
    )
    case(
        put("only_images", pack(event(s, image) for s in range(5))),
        form,
        "Only images in the event file.",
        "refused",
        EMPTY,
    )
    values = [
        event(
            s,
            tensor("train/loss", NAN if s > 15 else loss(s), "scalars"),
            scalar("train/grad_norm", INF if s == 15 else grad_norm(s)),
        )
        for s in range(1, 31)
    ]
    case(
        put("nan", pack(values)),
        form,
        "The loss is NaN from step 16 on, grad_norm is infinite once.",
        "told",
        NOT_FINITE,
        facts={"steps": 30, "non_finite": {"train/loss": 15, "train/grad_norm": 1}},
    )
    case(
        put("always_step_0", pack(event(0, scalar("loss", loss(s)), after=s) for s in range(30))),
        form,
        "Each event has step 0: add_scalar was called without a step.",
        "told",
        [*REPEATED, *ONE],
        also=["refused"],
    )
    values = [event(s, scalar("loss", 2.0), after=100) for s in (-5, 2**40, 2**62)]
    case(
        put("step_negative_and_huge", pack([*values[:1], *run(range(1, 21)), *values[1:]])),
        form,
        "Steps -5, 2^40 and 2^62 beside steps 1 to 20.",
        "told",
        STEP,
        also=["refused"],
        facts={"last": {"train/loss": loss(20)}},
    )
    order = list(range(1, 21))
    random.Random(5).shuffle(order)
    case(
        put("out_of_order", pack(run(order))),
        form,
        "Steps are in no order.",
        "told",
        ORDER,
        also=["refused"],
        facts={"steps": 20, "last": {"train/loss": loss(20)}},
    )
    tags = ["\x1b[2Jloss", "loss\nrun is healthy", "x" * 10_000]
    values = [*(event(1, scalar(tag, 1.0)) for tag in tags), *run(range(1, 21))]
    case(
        put("odd_tags", pack(values)),
        form,
        "Tags with colours, a newline, and 10,000 characters.",
        "told",
        ["name", "tag", "control", "character", "long", "renamed", "escape"],
        also=["read", "refused"],
        facts={"steps": 20, "last": {"train/loss": loss(20)}},
    )
    values = [
        event(s, tensor("train/loss", [loss(s), loss(s, 1)], "scalars")) for s in range(1, 21)
    ]
    case(
        put("vector_as_scalar", pack(values)),
        form,
        "The loss is a vector of two values at each step.",
        "refused",
        [*EMPTY, *NUMBER, "scalar", "vector", "shape", "tensor"],
        also=["told"],
    )
    put("good_and_foreign", pack(run(range(1, 21))))
    case(
        put(
            "good_and_foreign",
            [b"this is not an event file\n"],
            f"events.out.tfevents.{TIME + 9}.node1.18.0",
        ),
        form,
        "Beside a good event file of 20 steps stands one that is plain text.",
        "told",
        [*BAD, *CUT, *UNKNOWN],
        also=["refused"],
        facts={"last": {"train/loss": loss(20)}},
    )
    case(
        put("not_an_event_file", [b"slurmstepd: error: *** JOB 4211 CANCELLED ***\n"]),
        form,
        "Plain text under the name of an event file.",
        "refused",
        [*BAD, *CUT, *UNKNOWN, *EMPTY],
    )
    write(f"healthy/tensorboard/{name}", b"".join(pack(run(range(1, 21)))))
    case(
        "healthy/tensorboard",
        form,
        "Nothing.",
        "read",
        facts={"steps": 20, "last_step": 20, "last": {"train/loss": loss(20)}},
    )
    put("second_file_empty", pack(run(range(1, 21))))
    case(
        put("second_file_empty", pack([]), f"events.out.tfevents.{TIME + 60}.node1.18.0"),
        form,
        "Beside 20 good steps stands an event file with its version only: a resume that died at once.",
        "read",
        [*EMPTY, *REPEATED],
        also=["told"],
        facts={"steps": 20, "last": {"train/loss": loss(20)}},
        unsure="All that was logged is in the record; that a second job died would be good to know.",
    )
    write("tensorboard/no_event_file/README.txt", "The event files were moved.\n")
    case(
        "tensorboard/no_event_file",
        form,
        "A folder without an event file.",
        "refused",
        [*EMPTY, *UNKNOWN, "not found", "no event", "no tensorboard"],
    )


def make_wandb(work: Path) -> None:
    """Offline folders, by wandb."""
    wandb = importlib.import_module("wandb")
    proto = importlib.import_module("wandb.proto.wandb_internal_pb2")
    settings = wandb.Settings(
        x_disable_meta=True,
        x_disable_stats=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
        console="off",
        disable_git=True,
        disable_code=True,
        save_code=False,
        host="node1",
        program="train.py",
        root_dir=str(work),
        silent=True,
    )
    form = "wandb"

    def values(step: int, job: int = 0) -> tuple[int, dict[str, Any]]:
        return step, {"train/loss": loss(step, job), "train/grad_norm": grad_norm(step)}

    bad = [
        (
            s,
            {
                "train/loss": NAN if s > 15 else loss(s),
                "train/grad_norm": INF if s == 15 else grad_norm(s),
            },
        )
        for s in range(1, 31)
    ]
    runs: dict[str, list[tuple[int, dict[str, Any]]]] = {
        "whole001": [values(s) for s in range(1, 31)],
        "healthy1": [values(s) for s in range(1, 21)],
        "nohist01": [],
        "textonly": [(s, {"note": "hello"}) for s in range(5)],
        "nanloss1": bad,
        "first001": [values(s) for s in range(1, 11)],
        "second01": [values(s, 1) for s in range(1, 13)],
    }
    for ident, rows in runs.items():
        made = wandb.init(
            project="sft",
            name=ident,
            id=ident,
            mode="offline",
            settings=settings,
            config={"learning_rate": 1e-4},
        )
        for step, logged in rows:
            made.log(logged, step=step)
        made.finish()
    wandb.teardown()  # the files are whole only then

    def run(ident: str) -> bytes:
        (file,) = work.glob(f"wandb/offline-run-*-{ident}/run-{ident}.wandb")
        return file.read_bytes()

    def parts(content: bytes) -> list[tuple[int, int, str]]:
        """Start, end and kind of each record; the file is one block."""
        found, at = [], 7
        if len(content) >= 32768:
            raise SystemExit("a .wandb of more than one block")
        while at < len(content):
            _, length, kind = struct.unpack("<IHB", content[at : at + 7])
            if kind != 1:
                raise SystemExit("a record in parts")
            record = proto.Record()
            record.ParseFromString(content[at + 7 : at + 7 + length])
            found.append((at, at + 7 + length, record.WhichOneof("record_type")))
            at += 7 + length
        return found

    def put(folder: str, ident: str, content: bytes) -> str:
        path = f"wandb/{folder}/offline-run-20240101_000000-{ident}"
        write(f"{path}/run-{ident}.wandb", content)
        return path

    whole = run("whole001")
    found = parts(whole)
    history = [each for each in found if each[2] == "history"]
    middle = history[20]
    case(
        put("cut", "cut00001", whole[: (middle[0] + middle[1]) // 2]),
        form,
        "The file stops inside a record, after 20 whole steps: the disk was full.",
        "told",
        [*CUT, *BAD],
        facts={"steps": 20, "last": {"train/loss": loss(20)}},
    )
    case(
        put("killed", "killed01", whole[: history[24][1]]),
        form,
        "The file ends after a whole record, at step 25, without the record of the end: the job was killed.",
        "told",
        [
            *CUT,
            "not finished",
            "exit",
            "no end",
            "still running",
            "killed",
            "crash",
            "never finished",
            "did not finish",
        ],
        also=["read"],
        facts={"steps": 25, "last": {"train/loss": loss(25)}},
        unsure="A run that goes on looks the same.",
    )
    damaged = bytearray(whole)
    for offset in range(20, 30):
        damaged[middle[0] + offset] ^= 0xFF
    case(
        put("bad_checksum", "damage01", bytes(damaged)),
        form,
        "Ten bytes of the record of step 21 are wrong.",
        "told",
        [*BAD, *CUT],
        also=["refused"],
        facts={"at": {"train/loss": {20: loss(20)}}},
    )
    case(
        put("nul_bytes_at_end", "nulls001", whole[: history[19][1]] + b"\0" * 800),
        form,
        "After 20 whole steps come 800 NUL bytes: the power failed.",
        "told",
        [*BAD, *CUT, "nul", "zero"],
        also=["refused"],
        facts={"steps": 20, "last": {"train/loss": loss(20)}},
    )
    case(
        put("zero_bytes", "zeroby01", b""),
        form,
        "The .wandb file has 0 bytes.",
        "refused",
        [*EMPTY, *BAD],
    )
    case(
        put("header_only", "header01", whole[:7]),
        form,
        "The .wandb file holds its header and no record.",
        "refused",
        [*EMPTY, *CUT],
    )
    case(
        put("not_a_wandb_file", "foreign1", b"slurmstepd: error: *** JOB 4211 CANCELLED ***\n" * 4),
        form,
        "Plain text under the name of a .wandb file.",
        "refused",
        [*BAD, *UNKNOWN, *EMPTY],
    )
    case(
        put("no_history", "nohist01", run("nohist01")),
        form,
        "A whole run that logged nothing.",
        "refused",
        EMPTY,
    )
    case(
        put("only_text", "textonly", run("textonly")),
        form,
        "A whole run that logged only text.",
        "refused",
        [*EMPTY, *NUMBER],
    )
    case(
        put("nan", "nanloss1", run("nanloss1")),
        form,
        "The loss is NaN from step 16 on, grad_norm is infinite once.",
        "told",
        NOT_FINITE,
        facts={"steps": 30, "non_finite": {"train/loss": 15, "train/grad_norm": 1}},
    )
    put("two_runs", "first001", run("first001"))
    put("two_runs", "second01", run("second01"))
    case(
        "wandb/two_runs",
        form,
        "A folder with two offline runs.",
        "refused",
        SEVERAL,
        also=["told"],
        unsure="told is good only if it says which run was read.",
    )
    path = "healthy/wandb/offline-run-20240101_000000-healthy1"
    write(f"{path}/run-healthy1.wandb", run("healthy1"))
    case(
        path,
        form,
        "Nothing.",
        "read",
        facts={"steps": 20, "last_step": 20, "last": {"train/loss": loss(20)}},
    )
    write(
        "wandb/no_file/offline-run-20240101_000000-nofile01/files/wandb-summary.json",
        '{"train/loss": 1.5}\n',
    )
    case(
        "wandb/no_file/offline-run-20240101_000000-nofile01",
        form,
        "An offline folder without its .wandb file.",
        "refused",
        [*EMPTY, *UNKNOWN, "no .wandb", "not found", "missing"],
    )


def make_mlflow(work: Path) -> None:
    """MLflow's stores of files and of SQLite."""
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    mlflow = importlib.import_module("mlflow")
    form = "mlflow"
    Values = Iterable[tuple[str, float, int]]

    def store(uri: str, runs: dict[str, tuple[Values, str]]) -> None:
        client = mlflow.MlflowClient(tracking_uri=uri)
        experiment = client.create_experiment("sft")
        for name, (metrics, status) in runs.items():
            ident = client.create_run(experiment, start_time=TIME * 1000, run_name=name).info.run_id
            client.log_param(ident, "learning_rate", 1e-4)
            for count, (key, value, step) in enumerate(metrics):
                client.log_metric(ident, key, value, timestamp=TIME * 1000 + count, step=step)
            if status:
                client.set_terminated(ident, status=status, end_time=TIME * 1000 + 99_000)

    def put(folder: str, runs: dict[str, tuple[Values, str]]) -> str:
        """A store of files, without names of the machine that made it."""
        place = work / folder / "mlruns"
        store(place.as_uri(), runs)
        for file in sorted(place.rglob("*")):
            if file.is_file():
                text = file.read_text().replace(str(work / folder), "")
                lines_of = [
                    f"user_id: {USER}" if each.startswith("user_id:") else each
                    for each in text.split("\n")
                ]
                write(f"mlflow/{folder}/{file.relative_to(place.parent)}", "\n".join(lines_of))
        return f"mlflow/{folder}/mlruns"

    def put_sqlite(file: str, runs: dict[str, tuple[Values, str]]) -> str:
        """A store of SQLite; tables without a part in this are dropped, to keep it small."""
        made = work / Path(file).name
        store(f"sqlite:///{made}", runs)
        keep = {
            "alembic_version",
            "experiments",
            "experiment_tags",
            "runs",
            "metrics",
            "latest_metrics",
            "params",
            "tags",
        }
        with sqlite3.connect(made, isolation_level=None) as base:
            base.execute("PRAGMA foreign_keys = OFF")
            for (table_name,) in base.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            ).fetchall():
                if table_name not in keep and not table_name.startswith("sqlite_"):
                    base.execute(f'DROP TABLE "{table_name}"')
            base.execute("UPDATE runs SET artifact_uri = '/mlruns', user_id = ?", (USER,))
            base.execute("UPDATE experiments SET artifact_location = '/mlruns'")
            base.execute("PRAGMA page_size = 512")
            base.execute("VACUUM")
        write(f"mlflow/{file}", made.read_bytes())
        return f"mlflow/{file}"

    def curve(steps: Iterable[int], job: int = 0) -> list[tuple[str, float, int]]:
        return [
            each
            for s in steps
            for each in (("loss", loss(s, job), s), ("grad_norm", grad_norm(s), s))
        ]

    bad = [("loss", NAN if s > 15 else loss(s), s) for s in range(1, 31)]
    bad += [("grad_norm", INF if s == 15 else grad_norm(s), s) for s in range(1, 31)]
    case(
        put("empty_run", {"a": ([], "FINISHED")}),
        form,
        "The only run has parameters and no metric.",
        "refused",
        EMPTY,
    )
    case(
        put("nan", {"a": (bad, "FINISHED")}),
        form,
        "The loss is NaN from step 16 on, grad_norm is infinite once.",
        "told",
        NOT_FINITE,
        facts={"steps": 30, "non_finite": {"loss": 15, "grad_norm": 1}},
    )
    case(
        put_sqlite("nan.db", {"a": (bad, "FINISHED")}),
        form,
        "The same in SQLite, where MLflow stores NaN as 0 with a flag and infinity as 1.8e308.",
        "told",
        NOT_FINITE,
        facts={"steps": 30, "non_finite": {"loss": 15}, "never": {"loss": [0.0]}},
        unsure="Whether 1.8e308 must count as infinite. As a finite value it must at least not pass unseen.",
    )
    case(
        put_sqlite("empty_run.db", {"a": ([], "FINISHED")}),
        form,
        "A store of SQLite whose only run has no metric.",
        "refused",
        EMPTY,
    )
    case(
        put_sqlite("no_run.db", {}),
        form,
        "A store of SQLite without a run.",
        "refused",
        [*EMPTY, "no run"],
    )
    case(
        put("failed_run", {"a": (curve(range(1, 21)), "FAILED")}),
        form,
        "The run has the status FAILED.",
        "told",
        ["fail", "status", "not finished", "crash"],
        also=["refused"],
        facts={"steps": 20, "last": {"loss": loss(20)}},
    )
    case(
        put("still_running", {"a": (curve(range(1, 21)), "")}),
        form,
        "The run has the status RUNNING: it was killed, or it still runs.",
        "told",
        ["running", "status", "not finished", "unfinished", "killed"],
        facts={"steps": 20, "last": {"loss": loss(20)}},
    )
    case(
        put(
            "two_runs",
            {"a": (curve(range(1, 11)), "FINISHED"), "b": (curve(range(1, 16), 1), "FINISHED")},
        ),
        form,
        "A store with two runs.",
        "refused",
        SEVERAL,
        also=["told"],
        unsure="told is good only if it says which run was read.",
    )
    case(
        put("always_step_0", {"a": ([("loss", loss(s), 0) for s in range(30)], "FINISHED")}),
        form,
        "Each value has step 0: log_metric was called without a step.",
        "told",
        [*REPEATED, *ONE],
        also=["refused"],
    )
    rows = [*curve(range(1, 31)), *curve(range(21, 41), 1)]
    case(
        put("resumed", {"a": (rows, "FINISHED")}),
        form,
        "Steps 21 to 30 stand there twice, with other values.",
        "told",
        REPEATED,
        facts={"steps": 40, "last": {"loss": loss(40, 1)}, "at": {"loss": {25: loss(25, 1)}}},
    )
    case(
        put("cut_and_damaged", {"a": (curve(range(1, 31)), "FINISHED")}),
        form,
        "The file of the loss stops inside its last value, and one of its lines is half.",
        "told",
        [*CUT, *BAD],
        also=["refused"],
        facts={"last": {"grad_norm": grad_norm(30)}},
    )
    (file,) = (ROOT / "mlflow/cut_and_damaged").rglob("metrics/loss")
    text = file.read_text().split("\n")
    text[9] = text[9][:8]
    file.write_text("\n".join(text).rstrip("\n")[:-6], newline="\n")
    case(
        put("no_meta", {"a": (curve(range(1, 21)), "FINISHED")}),
        form,
        "The run has lost its meta.yaml.",
        "told",
        ["meta", *BAD, *EMPTY, "missing", "no run"],
        also=["refused"],
        facts={"steps": 20, "last": {"loss": loss(20)}},
    )
    (file,) = (ROOT / "mlflow/no_meta").glob("mlruns/*/*/meta.yaml")
    file.unlink()
    put("good", {"a": (curve(range(1, 21)), "FINISHED")})
    shutil.move(ROOT / "mlflow/good", _parent("healthy/mlflow"))
    case(
        "healthy/mlflow/mlruns",
        form,
        "Nothing.",
        "read",
        facts={"steps": 20, "last_step": 20, "last": {"loss": loss(20)}},
    )
    case(
        put("empty_store", {}),
        form,
        "A store of files without a run.",
        "refused",
        [*EMPTY, "no run"],
    )


USER = "someone"


def make_trackio(work: Path) -> None:
    """Trackio's SQLite files."""
    os.environ["TRACKIO_DIR"] = str(work)
    os.environ["HF_HUB_OFFLINE"] = "1"
    trackio = importlib.import_module("trackio")
    form = "trackio"

    def log(project: str, run: str, rows: Iterable[tuple[int, dict[str, Any]]]) -> Path:
        trackio.init(project=project, name=run, config={"learning_rate": 1e-4}, embed=False)
        for step, values in rows:
            trackio.log(values, step=step)
        trackio.finish()
        return work / f"{project}.db"

    def shrink(file: Path) -> bytes:
        """The same base with small pages."""
        with sqlite3.connect(file, isolation_level=None) as base:
            base.execute("PRAGMA journal_mode = DELETE")
            base.execute("PRAGMA page_size = 512")
            base.execute("VACUUM")
        base.close()
        return file.read_bytes()

    def put(name: str, content: bytes) -> str:
        write(f"trackio/{name}.db", content)
        return f"trackio/{name}.db"

    def curve(steps: Iterable[int], job: int = 0) -> list[tuple[int, dict[str, Any]]]:
        return [(s, {"loss": loss(s, job), "grad_norm": grad_norm(s)}) for s in steps]

    whole = shrink(log("whole", "a", curve(range(1, 21))))
    write("healthy/trackio.db", whole)
    case(
        "healthy/trackio.db",
        form,
        "Nothing.",
        "read",
        facts={"steps": 20, "last_step": 20, "last": {"loss": loss(20)}},
    )
    file = work / "no_metrics.db"
    file.write_bytes(whole)
    with sqlite3.connect(file) as base:
        base.execute("DELETE FROM metrics")
    case(
        put("no_metrics", shrink(file)),
        form,
        "A run with a configuration and no metric.",
        "refused",
        EMPTY,
    )
    rows = [
        (s, {"loss": NAN if s > 15 else loss(s), "grad_norm": INF if s == 15 else grad_norm(s)})
        for s in range(1, 31)
    ]
    case(
        put("nan", shrink(log("nan", "a", rows))),
        form,
        "The loss is NaN from step 16 on, grad_norm is infinite once.",
        "told",
        NOT_FINITE,
        facts={"steps": 30, "non_finite": {"loss": 15, "grad_norm": 1}},
    )
    log("two_runs", "a", curve(range(1, 11)))
    case(
        put("two_runs", shrink(log("two_runs", "b", curve(range(1, 13), 1)))),
        form,
        "A project with two runs.",
        "refused",
        SEVERAL,
        also=["told"],
        unsure="told is good only if it says which run was read.",
    )
    rows = [*curve(range(1, 31)), *curve(range(21, 41), 1)]
    case(
        put("resumed", shrink(log("resumed", "a", rows))),
        form,
        "Steps 21 to 30 stand there twice, with other values.",
        "told",
        REPEATED,
        facts={"steps": 40, "last": {"loss": loss(40, 1)}, "at": {"loss": {25: loss(25, 1)}}},
    )
    case(
        put("cut", whole[: len(whole) * 2 // 3]),
        form,
        "The last third of the file is missing.",
        "refused",
        [*CUT, *BAD],
        also=["told"],
    )
    case(
        put("header_only", whole[:100]),
        form,
        "Only the first 100 bytes of the file are there.",
        "refused",
        [*CUT, *BAD, *EMPTY],
    )
    case(
        put("zero_bytes", b""),
        form,
        "A file of 0 bytes, which SQLite takes for an empty base.",
        "refused",
        [*EMPTY, *UNKNOWN],
    )

    def broken_rows(base: sqlite3.Connection) -> None:
        base.execute("UPDATE metrics SET metrics = substr(metrics, 1, 9) WHERE step IN (7, 8)")

    file = work / "broken_rows.db"
    file.write_bytes(whole)
    with sqlite3.connect(file) as base:
        broken_rows(base)
    base.close()
    case(
        put("broken_rows", file.read_bytes()),
        form,
        "The JSON of steps 7 and 8 is cut.",
        "told",
        [*CUT, *BAD, *NUMBER],
        also=["refused"],
        facts={"last": {"loss": loss(20)}},
    )

    file = work / "wal.db"
    file.write_bytes(whole)
    base = sqlite3.connect(file)
    base.execute("PRAGMA journal_mode = WAL")
    base.execute("PRAGMA wal_autocheckpoint = 0")
    ident, when, run = base.execute("SELECT run_id, timestamp, run_name FROM metrics").fetchone()
    for step, values in curve(range(21, 31)):
        base.execute(
            "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?, ?)",
            (ident, when, run, step, json.dumps(values).encode()),
        )
    base.commit()
    for suffix in ("", "-wal"):
        write(
            f"trackio/wal_left/project.db{suffix}", file.with_name(file.name + suffix).read_bytes()
        )
    base.close()
    case(
        "trackio/wal_left/project.db",
        form,
        "A killed job left 10 of 30 steps in the file project.db-wal beside the base.",
        "read",
        ["wal", "journal", *CUT],
        also=["told"],
        facts={"steps": 30, "last_step": 30, "last": {"loss": loss(30)}},
    )


LINE = r"step (?P<step>-?\d+) .*?loss (?P<loss>\S+)"


def make_console() -> None:
    """Console logs."""
    form = "console"

    def said(step: int, job: int = 0) -> str:
        return f"[INFO] step {step} | loss {loss(step, job)} | grad_norm {grad_norm(step)}\n"

    def put(name: str, content: str | bytes) -> str:
        write(f"console/{name}.log", content)
        return f"console/{name}.log"

    start = "Loading model\nUsing 8 GPUs\n"
    good = start + "".join(said(s) for s in range(1, 31))
    case(put("empty", ""), form, "A file of 0 bytes.", "refused", EMPTY, pattern=LINE)
    case(
        put("no_match", start + "Waiting for a GPU\n" * 20),
        form,
        "No line fits the pattern.",
        "refused",
        [*EMPTY, "match", "fit", "pattern"],
        pattern=LINE,
    )
    case(
        put("format_changed", good.replace("loss ", "loss=", 28).replace("loss=", "loss ", 4)),
        form,
        "6 of 30 lines fit the pattern: the others say loss= in place of loss.",
        "told",
        ["match", "fit", "gap", "missing", "6 of", "24", "pattern"],
        also=["read"],
        facts={"last": {"loss": loss(30)}},
        pattern=LINE,
        unsure="Most logs hold many lines that do not fit. The gap in the steps is the sign here.",
    )
    text = start + "".join(
        f"[INFO] step {s} | loss {'nan' if s > 20 else 'inf' if s == 20 else loss(s)} | x\n"
        for s in range(1, 31)
    )
    case(
        put("nan", text),
        form,
        "The loss is inf at step 20 and nan from step 21 on.",
        "told",
        NOT_FINITE,
        pattern=LINE,
        facts={"steps": 30, "non_finite": {"loss": 11}},
    )
    bars = "".join(
        f"\rTraining:  {s * 100 // 30:3}%|\x1b[32m####\x1b[0m| step {s} of 30, loss {loss(s)} , 1.31it/s"
        for s in range(1, 31)
    )
    case(
        put("progress_bar", start + bars + "\n"),
        form,
        "A progress bar: 30 updates in one line, with carriage returns and colours.",
        "read",
        [*ONE, *REPEATED, "carriage"],
        also=["told", "refused"],
        pattern=LINE,
        facts={"steps": 30, "last": {"loss": loss(30)}},
        unsure="A record of only the first or the last update, without a word, is the failure.",
    )
    trace = (
        'Traceback (most recent call last):\n  File "train.py", line 210, in <module>\n    loss.backward()\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n"
    )
    case(
        put("crashed", good + trace),
        form,
        "After step 30 the log ends with a traceback: out of memory.",
        "told",
        ["traceback", "error", "out of memory", "crash", "exception", "fail"],
        also=["read"],
        pattern=LINE,
        facts={"steps": 30, "last": {"loss": loss(30)}},
        unsure="An import that reads only lines of the pattern cannot be asked for this by right.",
    )
    text = "".join(
        f"[rank{rank}] step {s} | loss {loss(s, rank)} | x\n"
        for s in range(1, 21)
        for rank in range(4)
    )
    case(
        put("four_ranks", text),
        form,
        "Four processes print each step, each with its own loss.",
        "told",
        REPEATED,
        also=["refused"],
        pattern=LINE,
        facts={"steps": 20},
    )
    text = good + "Restarting from checkpoint 20\n" + "".join(said(s, 1) for s in range(21, 41))
    case(
        put("restarted", text),
        form,
        "The job restarted from step 20: steps 21 to 30 stand there twice.",
        "told",
        REPEATED,
        pattern=LINE,
        facts={"steps": 40, "last": {"loss": loss(40, 1)}, "at": {"loss": {25: loss(25, 1)}}},
    )
    text = good.replace(said(12), said(12) + "Gr\u00f6\u00dfe des Puffers: \x1b[1m12\x1b[0m\n")
    case(
        put("latin1", text.encode("latin-1")),
        form,
        "One line that does not fit the pattern is in latin-1.",
        "read",
        ENCODING,
        also=["told"],
        pattern=LINE,
        facts={"steps": 30, "last": {"loss": loss(30)}},
    )
    last = f"[INFO] step 31 | loss {loss(31)}"
    case(
        put("last_line_cut", good + last[:-3]),
        form,
        "The last line stops inside the loss, after its first digits, without a newline.",
        "told",
        [*CUT, "newline"],
        also=["read"],
        pattern=LINE,
        facts={"at": {"loss": {30: loss(30)}}},
        unsure="Only the missing newline shows it. The value of step 31 is wrong by up to 0.1.",
    )
    text = start + "".join(
        f"step {s} tok/s {12.5 + s / 10:.1f}k loss {loss(s)} \n" for s in range(1, 21)
    )
    case(
        put("unit_after_number", text),
        form,
        "The pattern takes 12.6k for tok/s: not a number.",
        "told",
        [*NUMBER, "tok", "12."],
        also=["refused", "read"],
        pattern=r"step (?P<step>\d+) tok/s (?P<tokens_per_second>\S+) loss (?P<loss>\S+)",
        facts={"last": {"loss": loss(20)}, "never": {"tokens_per_second": [12.6, 14.5]}},
    )
    case(
        put("utf16", good.encode("utf-16")),
        form,
        "UTF-16, as a redirect in PowerShell writes it.",
        "refused",
        [*ENCODING, *EMPTY, "match"],
        also=["told", "read"],
        pattern=LINE,
        facts={"steps": 30, "last": {"loss": loss(30)}},
    )
    text = (
        good.replace(f"loss {loss(9)}", "loss 1.2.3")
        .replace(f"loss {loss(10)}", "loss --")
        .replace("step 14 ", "step 99999999999999999999 ")
    )
    case(
        put("odd_numbers", text),
        form,
        "A loss 1.2.3, a loss -- and a step of 20 digits.",
        "told",
        [*NUMBER, *STEP, "--", "1.2.3"],
        also=["refused"],
        pattern=LINE,
    )


def make_other(work: Path) -> None:
    """Sources that are of no format, or of two."""
    file = work / "foreign.db"
    with sqlite3.connect(file, isolation_level=None) as base:
        base.execute("PRAGMA page_size = 512")
        base.execute("CREATE TABLE customers (id INTEGER, name TEXT, step INTEGER)")
        base.execute("INSERT INTO customers VALUES (1, 'a', 3), (2, 'b', 4)")
    base.close()
    for form in ("trackio", "mlflow"):
        write(f"other/foreign_{form}.db", file.read_bytes())
        case(
            f"other/foreign_{form}.db",
            form,
            "A base of SQLite with a table of customers and no metrics.",
            "refused",
            [*UNKNOWN, *EMPTY],
        )
    write("other/foreign.sqlite", file.read_bytes())
    case(
        "other/foreign.sqlite",
        None,
        "A base of SQLite of another program, without a format named.",
        "refused",
        [*UNKNOWN, *EMPTY],
    )
    numpy = importlib.import_module("numpy")
    out = io.BytesIO()
    numpy.savez(out, step=numpy.arange(20), loss=numpy.linspace(2, 1, 20))
    write("other/metrics.npz", out.getvalue())
    case(
        "other/metrics.npz",
        None,
        "A file of numpy: no format of the list.",
        "refused",
        [*UNKNOWN, *ENCODING],
    )
    write("other/no_name_to_go_by", random.Random(11).randbytes(3000))
    case(
        "other/no_name_to_go_by",
        None,
        "Random bytes without an ending in the name.",
        "refused",
        [*UNKNOWN, *ENCODING],
    )
    write("other/only_a_readme/README.md", "# Results\n\nThey are on the other disk.\n")
    case(
        "other/only_a_readme",
        None,
        "A folder with a README and no log.",
        "refused",
        [*UNKNOWN, *EMPTY],
    )
    for rank in (0, 1):
        write(
            f"other/a_file_per_rank/rank_{rank}.jsonl",
            lines(row(s, loss=loss(s, rank)) for s in range(1, 21)),
        )
    case(
        "other/a_file_per_rank",
        None,
        "A folder with a JSONL file of each of two processes.",
        "refused",
        [*SEVERAL, *UNKNOWN, "two", "folder", "directory", "file"],
        also=["told"],
    )
    state = {
        "global_step": 20,
        "max_steps": 20,
        "log_history": [{**row(s), "epoch": s / 20} for s in range(1, 21)],
    }
    write("other/two_formats/trainer_state.json", json.dumps(state))
    shutil.copyfile(
        ROOT / "tensorboard/resumed" / f"events.out.tfevents.{TIME}.node1.17.0",
        _parent("other/two_formats/runs/a/events.out.tfevents.1700000000.node1.17.0"),
    )
    case(
        "other/two_formats",
        None,
        "An output folder with a trainer_state.json of 20 steps and an event file of 30 steps.",
        "told",
        [*SEVERAL, "trainer_state", "tensorboard", "tfevents", "event file", "both"],
        also=["refused"],
    )
    write("other/wrong_name.csv", lines(row(s) for s in range(1, 21)))
    case(
        "other/wrong_name.csv",
        None,
        "JSON lines with the name .csv.",
        "refused",
        [*UNKNOWN, *COLUMNS, *NUMBER, *EMPTY, "json"],
        also=["told", "read"],
        facts={"steps": 20, "last": {"loss": loss(20)}},
    )
    write("other/wrong_name.jsonl", table(columns(range(1, 21))))
    case(
        "other/wrong_name.jsonl",
        None,
        "A table with the name .jsonl.",
        "refused",
        [*UNKNOWN, *BAD, "json", "csv"],
        also=["told", "read"],
        facts={"steps": 20, "last": {"loss": loss(20)}},
    )


def make_healthy() -> None:
    """Controls of the formats that need no writer of another program."""
    facts = {"steps": 20, "last_step": 20, "last": {"loss": loss(20)}}
    write("healthy/table.csv", table(columns(range(1, 21))))
    case("healthy/table.csv", "csv", "Nothing.", "read", facts=facts)
    write("healthy/no_last_newline.csv", table(columns(range(1, 21))).rstrip("\n"))
    case(
        "healthy/no_last_newline.csv",
        "csv",
        "Nothing; the last line has no newline.",
        "read",
        facts=facts,
    )
    rows: list[list[Any]] = [["epoch", "step", "train_loss", "val_loss"]]
    for step in range(10, 210, 10):
        rows.append([step // 50, step, loss(step // 10), ""])
        if step % 50 == 0:
            rows.append([step // 50, step, "", loss(step // 10, 1)])
    write("healthy/rows_of_validation.csv", table(rows))
    case(
        "healthy/rows_of_validation.csv",
        "csv",
        "Nothing; a row of validation has empty cells for training, at the same step, and each 10th step is logged.",
        "read",
        facts={
            "steps": 20,
            "last_step": 200,
            "last": {"train_loss": loss(20), "val_loss": loss(20, 1)},
        },
    )
    write("healthy/lines.jsonl", lines(row(s) for s in range(1, 21)))
    case("healthy/lines.jsonl", "jsonl", "Nothing.", "read", facts=facts)
    rows_of = [
        each
        for s in range(1, 21)
        for each in ([row(s)] + ([{"step": s, "eval_loss": loss(s, 1)}] if s % 5 == 0 else []))
    ]
    write("healthy/evaluations.jsonl", lines(rows_of))
    case(
        "healthy/evaluations.jsonl",
        "jsonl",
        "Nothing; each fifth step has a second line with another metric.",
        "read",
        facts={**facts, "last": {"loss": loss(20), "eval_loss": loss(20, 1)}},
    )
    write("healthy/list.json", json.dumps([row(s) for s in range(1, 21)]))
    case("healthy/list.json", "json", "Nothing.", "read", facts=facts)
    history: list[dict[str, Any]] = [
        {
            "epoch": s / 20,
            "grad_norm": grad_norm(s),
            "learning_rate": 1e-4,
            "loss": loss(s),
            "step": s,
        }
        for s in range(1, 21)
    ]
    history += [
        {"epoch": 1.0, "eval_loss": loss(20, 1), "eval_runtime": 2.0, "step": 20},
        {"epoch": 1.0, "step": 20, "total_flos": 0.0, "train_loss": 1.9, "train_runtime": 33.1},
    ]
    state = {
        "epoch": 1.0,
        "global_step": 20,
        "log_history": history,
        "logging_steps": 1,
        "max_steps": 20,
    }
    write("healthy/trainer_state.json", json.dumps(state, indent=2))
    case(
        "healthy/trainer_state.json",
        "trainer_state",
        "Nothing; step 20 also has an evaluation and the summary.",
        "read",
        facts=facts,
    )
    text = "Loading model\n" + "".join(
        f"[INFO] step {s} | loss {loss(s)} | grad_norm {grad_norm(s)}\n" for s in range(1, 21)
    )
    write("healthy/console.log", text + "Saved to out/\n")
    case(
        "healthy/console.log",
        "console",
        "Nothing; two lines do not fit the pattern.",
        "read",
        pattern=LINE,
        facts=facts,
    )


def _parent(path: str) -> Path:
    target = ROOT / path
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


MADE_AT_TEST_TIME: Cases = [
    {"name": "no_such_path", "how": "A path that is not there: metrics.jsonl in an empty folder.",
     "outcome": "refused", "mentions": ["not found", "no such", "does not exist", "not there", "missing"]},
    {"name": "empty_folder", "how": "mkdir. Git keeps no empty folder.",
     "outcome": "refused", "mentions": [*EMPTY, *UNKNOWN]},
    {"name": "folder_named_csv", "how": "mkdir metrics.csv", "outcome": "refused",
     "mentions": ["folder", "directory", "not a file", *EMPTY, *UNKNOWN]},
    {"name": "dangling_link", "how": "symlink metrics.jsonl to a path that is not there.",
     "outcome": "refused", "mentions": ["link", "not found", "no such", "does not exist", "not there"]},
    {"name": "link_to_itself", "how": "symlink loop.jsonl to loop.jsonl.",
     "outcome": "refused", "mentions": ["link", "loop", "not found", "no such", "too many levels", "does not exist"]},
    {"name": "folder_linked_into_itself",
     "how": "The folder tensorboard/cut, copied, with a symlink `again` in it to the folder itself.",
     "outcome": "told", "mentions": [*CUT, *BAD], "facts": {"steps": 20},
     "note": "It must end, and the events must not be read twice."},
    {"name": "link_to_good_file", "how": "symlink to a good JSONL of 20 steps.",
     "outcome": "read", "also": ["told", "refused"], "mentions": ["link"], "facts": {"steps": 20}},
    {"name": "pipe", "how": "os.mkfifo('metrics.jsonl'), and nobody writes.",
     "outcome": "refused", "mentions": ["pipe", "fifo", "not a file", "not a regular", "regular file"],
     "note": "It must not wait for a writer."},
    {"name": "pipe_in_folder", "how": "A fifo named events.out.tfevents.1700000000.node1.1.0 beside a good event file.",
     "outcome": "told", "also": ["refused"], "mentions": ["pipe", "fifo", "not a file", "regular", "skipped"],
     "note": "It must not wait for a writer."},
    {"name": "socket", "how": "bind a Unix socket with the name metrics.jsonl.",
     "outcome": "refused", "mentions": ["socket", "not a file", "regular", "cannot", "could not", "no such device"]},
    {"name": "endless_device", "how": "/dev/zero with --format jsonl.",
     "outcome": "refused", "mentions": ["device", "not a file", "regular", "too large"]},
    {"name": "sparse_giant", "how": "A file metrics.jsonl of 8 GB by truncate: all NUL, one line, no space on disk.",
     "outcome": "refused", "mentions": [*BAD, *EMPTY, *ENCODING, "large", "long"],
     "note": "Less than 2 GB of memory, less than 60 seconds."},
    {"name": "giant_line", "how": "A good JSONL of 20 steps, then one line of 300 MB of the letter x.",
     "outcome": "told", "also": ["refused"], "mentions": [*BAD, *CUT, "line", "long", "large"]},
    {"name": "giant_cell", "how": "A good CSV of 20 steps with a text column, of which one cell has 200,000 characters.",
     "outcome": "read", "also": ["told", "refused"], "mentions": ["cell", "field", "long", "large", "limit"],
     "facts": {"steps": 20}},
    {"name": "many_steps", "how": "A JSONL of 1,000,000 lines {step, loss}.",
     "outcome": "read", "also": ["told", "refused"], "mentions": ["thinned", "sampled", "every", "large", "too many", "steps"],
     "note": "Steps that are thinned out must be told. The last step must be right."},
    {"name": "many_columns", "how": "A CSV of 20,000 columns and 20 rows.",
     "outcome": "told", "also": ["read", "refused"], "mentions": ["metrics", "columns", "many", "large"]},
    {"name": "gzip_bomb", "how": "gzip of 4 GB of zeros, as metrics.jsonl.gz.",
     "outcome": "refused", "mentions": ["gzip", "compress", "large", *BAD, *UNKNOWN, *ENCODING],
     "note": "Less than 2 GB of memory."},
    {"name": "no_permission", "how": "chmod 000 on a good JSONL. Skip for root.",
     "outcome": "refused", "mentions": ["permission", "denied", "not allowed", "cannot read", "could not be read"]},
    {"name": "folder_without_permission", "how": "chmod 000 on a subfolder with event files, beside one that is good. Skip for root.",
     "outcome": "told", "also": ["refused"], "mentions": ["permission", "denied", "cannot", "could not", "skipped"]},
    {"name": "read_only_wal", "how": "trackio/wal_left copied into a folder with mode 555. Skip for root.",
     "outcome": "read", "also": ["refused", "told"], "mentions": ["wal", "read-only", "readonly", "journal", "cannot", "could not"],
     "facts": {"steps": 30}, "note": "20 steps without a word is the failure."},
    {"name": "locked_base", "how": "trackio/resumed.db copied, with a second connection that holds BEGIN EXCLUSIVE.",
     "outcome": "refused", "also": ["told"], "mentions": ["lock", "busy", "in use"], "note": "It must not wait for ever."},
    {"name": "growing_file", "how": "A thread appends a line to a JSONL of 20 steps each 10 ms during the import.",
     "outcome": "read", "also": ["told"], "mentions": ["grow", "chang", "still", *CUT],
     "note": "It must end. At least the first 20 steps are right."},
    {"name": "file_vanishes", "how": "A folder of event files of which one is removed after it was listed (patch the listing).",
     "outcome": "told", "also": ["refused"], "mentions": ["not found", "vanish", "no such", "gone", "could not", "cannot"]},
    {"name": "name_not_utf8", "how": "A good JSONL of 20 steps under the name b'metrics-\\xff\\xfe.jsonl'.",
     "outcome": "read", "also": ["told", "refused"], "mentions": ["name", "encod", "utf"], "facts": {"steps": 20}},
    {"name": "name_with_newline", "how": "A broken JSONL (jsonl/binary.jsonl) under the name 'a\\nimport succeeded.jsonl'.",
     "outcome": "refused", "mentions": [*ENCODING, *BAD, "json"], "note": "The name must not forge a line of the output."},
    {"name": "name_with_colours", "how": "jsonl/binary.jsonl under the name '\\x1b[32mok\\x1b[0m.jsonl'.",
     "outcome": "refused", "mentions": [*ENCODING, *BAD, "json"], "note": "No raw escape reaches the terminal."},
    {"name": "name_looks_like_an_option", "how": "A good JSONL of 20 steps with the name '--format', given after `--`.",
     "outcome": "read", "facts": {"steps": 20}},
    {"name": "standard_input", "how": "The source is `-`, with nothing on standard input.",
     "outcome": "refused", "mentions": ["not found", "no such", "does not exist", "not there", *EMPTY, "standard input", "stdin"]},
    {"name": "bad_pattern", "how": "console/nan.log with the pattern '(?P<step>\\d+'.",
     "outcome": "refused", "mentions": ["pattern", "regular expression", "regex", "parenthesis"]},
    {"name": "pattern_without_groups", "how": "console/nan.log with the pattern 'loss'.",
     "outcome": "refused", "mentions": ["group", "name", "pattern", *EMPTY]},
    {"name": "slow_pattern",
     "how": "A log with the line 'step ' + 'a' * 40 + '!' and the pattern '(?P<step>(a+)+)$'.",
     "outcome": "refused", "also": ["told"], "mentions": ["pattern", "slow", "time", "match", "step", *EMPTY],
     "note": "It must end within 60 seconds, or be stopped by Ctrl-C.",
     "unsure": "The user wrote the pattern; waiting may be what is asked for."},
    {"name": "format_does_not_fit", "how": "tensorboard/cut with --format csv, and csv/resumed.csv with --format tensorboard.",
     "outcome": "refused", "mentions": [*UNKNOWN, *BAD, *EMPTY, *ENCODING, "directory", "folder", "event"]},
]  # fmt: skip


def main() -> None:
    """Makes all inputs anew."""
    if ROOT.exists():
        shutil.rmtree(ROOT)
    ROOT.mkdir(parents=True)
    write(".gitattributes", "* -text\n")
    simple: list[Callable[[], None]] = [
        make_csv,
        make_more_csv,
        make_jsonl,
        make_more_jsonl,
        make_json,
        make_trainer_state,
        make_tensorboard,
        make_console,
        make_healthy,
    ]
    for make in simple:
        make()
    with tempfile.TemporaryDirectory() as temporary:
        for name, fill in (
            ("wandb", make_wandb),
            ("mlflow", make_mlflow),
            ("trackio", make_trackio),
            ("other", make_other),
        ):
            work = Path(temporary) / name
            work.mkdir()
            fill(work)
        for file in ROOT.rglob("*"):
            if file.is_file() and temporary.encode() in file.read_bytes():
                raise SystemExit(f"{file} holds a path of this machine")
    whole = {
        "always": ALWAYS,
        "words": WORDS,
        "inputs": CASES,
        "controls": CONTROLS,
        "made_at_test_time": MADE_AT_TEST_TIME,
    }
    for each in MADE_AT_TEST_TIME:
        each["mentions"] = list(dict.fromkeys(each.get("mentions", [])))
    text = yaml.dump(whole, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    (ROOT / "expectations.yaml").write_text(HEADER + text, encoding="utf-8")
    size = sum(file.stat().st_size for file in ROOT.rglob("*") if file.is_file())
    sys.stdout.write(f"{len(CASES)} inputs, {len(CONTROLS)} controls, {size / 1000:.0f} kB\n")


class _Dumper(yaml.SafeDumper):
    """Writes each value in full, and lists of words in one line."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _list(dumper: yaml.SafeDumper, data: list[Any]) -> yaml.Node:
    short = all(isinstance(each, (str, int, float)) for each in data) and data is not ALWAYS
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=short)


_Dumper.add_representer(list, _list)


if __name__ == "__main__":
    main()
