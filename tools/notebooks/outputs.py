"""What is stored of a notebook's outputs: no path, date or name of the machine that ran it."""

from __future__ import annotations

import getpass
import platform
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

LARGEST = 400_000
"""Bytes of all outputs of one notebook."""
RUN = re.compile(r"\b\d{8}-\d{6}-(?=[A-Za-z])")
STAMP = re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?")
DAY = re.compile(r"\b20\d\d-\d\d-\d\d\b")
TEXT = ("text/plain", "text/html", "text/markdown")
KEPT = (*TEXT, "image/svg+xml")
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
WORK = r"canary-[a-z0-9_]{8}"
"""The folder that the first cell makes with `tempfile`, and works in."""
ROOT = "root"
"""A user name that is also a word, as in `root mean square`, and names nobody."""
ENDS = re.compile(r"\r+\n")
"""Ends of lines, as a terminal writes them."""


def cleaner(folder: Path) -> Callable[[str], str]:
    """Return what cleans a text of a notebook that ran in a folder."""
    names = {str(folder.resolve()): ".", str(folder): "."}
    names |= {sys.prefix: "PYTHON", sys.base_prefix: "PYTHON", str(Path.home()): "~"}
    # Packages may be shared with another environment.
    names |= {one: "PYTHON" for one in sys.path if "site-packages" in one}
    root = Path(__file__).parents[2]
    names |= {str(root): "CLONE"}
    ordered = sorted(names.items(), key=lambda one: -len(one[0]))
    host = platform.node()
    given = {host, host.partition(".")[0], getpass.getuser()} - {ROOT}
    who = [re.escape(one) for one in sorted(given, key=len, reverse=True) if len(one) > 2]
    # Classes of charts hold words that may be somebody's name.
    machine = re.compile(rf'(<[a-zA-Z][^<>]*? class="[^"]*")|\b(?:{"|".join(who)})\b')

    work = re.compile(rf"(?:{re.escape(str(folder.resolve()))}|{re.escape(str(folder))})/{WORK}\b")

    def clean(text: str) -> str:
        text = work.sub(".", text)
        for path, name in ordered:
            text = text.replace(path, name)
        text = ENDS.sub("\n", CONTROL.sub("", text))
        text = RUN.sub("DATE-TIME-", text)
        text = STAMP.sub("DATE", text)
        text = DAY.sub("DATE", text)
        return machine.sub(lambda found: found[1] or "MACHINE", text) if who else text

    return clean


def clean_notebook(notebook: Any, folder: Path) -> None:
    """Clean an executed notebook in place."""
    clean = cleaner(folder)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(notebook.cells, start=1):
        cell.id = f"cell-{number:02d}"
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = _joined([_output(one, clean) for one in cell.outputs])


def _output(output: Any, clean: Callable[[str], str]) -> Any:
    if output.output_type == "stream":
        output.text = clean(output.text)
    elif output.output_type in ("execute_result", "display_data"):
        output.metadata = {}
        output.data = {kind: clean(output.data[kind]) for kind in KEPT if kind in output.data}
    elif output.output_type == "error":
        output.evalue = clean(output.evalue)
        output.traceback = [clean(line) for line in output.traceback]
    return output


def _joined(outputs: list[Any]) -> list[Any]:
    """Join neighbours of one stream: how a program's lines are cut is chance."""
    found: list[Any] = []
    for one in outputs:
        kinds = [(each.output_type, each.get("name")) for each in (one, *found[-1:])]
        if kinds in ([("stream", "stdout")] * 2, [("stream", "stderr")] * 2):
            found[-1].text += one.text
        else:
            found.append(one)
    return found
