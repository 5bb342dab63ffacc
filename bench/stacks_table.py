"""Versions in docs/trainers.md, from docs/stacks.json: `python -m bench.stacks_table [RESULT ...]`.

With results of `bench.stacks`: exit code 1 if they differ from docs/stacks.json. With `--write`,
they replace the old ones there, and the table is rewritten.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.stacks import TRAINERS

DOCS = Path(__file__).parents[1] / "docs"
RESULTS, PAGE = DOCS / "stacks.json", DOCS / "trainers.md"
BEGIN, END = "<!-- begin: bench/stacks_table.py -->", "<!-- end: bench/stacks_table.py -->"
NAMES = {"reward": "Reward", "trl_ppo": "trl's PPO"}
SHORT = {"works": "works", "not offered": "not offered", "fails": "**fails**"}

Results = dict[str, Any]


def version_key(version: str) -> tuple[int, ...]:
    """Return a sort key: 0.29.1 before 1.0.0."""
    return tuple(int(part) for part in version.split("."))


def table(results: Mapping[str, Results]) -> str:
    """Return the Markdown between the markers: one row per trainer, one column per stack, notes."""
    versions = sorted(results, key=version_key)
    notes: list[str] = []
    lines = [
        "| trl | " + " | ".join(versions) + " |",
        "|---|" + "---|" * len(versions),
    ]
    for package in results[versions[-1]]["packages"]:
        cells = [results[version]["packages"][package] for version in versions]
        lines.append(f"| {package} | " + " | ".join(cells) + " |")
    for kind in TRAINERS:
        cells = [_cell(results[version]["trainers"].get(kind), notes) for version in versions]
        lines.append(f"| **{NAMES.get(kind, kind.upper())}** | " + " | ".join(cells) + " |")
    lines += ["", *(f"{number}. {note}" for number, note in enumerate(notes, start=1))]
    return "\n".join(lines).rstrip()


def _cell(found: Mapping[str, Any] | None, notes: list[str]) -> str:
    if found is None:
        return "not run"
    if found["outcome"] != "works with a note":
        return SHORT[found["outcome"]]
    for note in found["notes"]:
        if note not in notes:
            notes.append(note)
    numbers = ", ".join(str(notes.index(note) + 1) for note in found["notes"])
    return f"works, note {numbers}"


def with_table(page: str, results: Mapping[str, Results]) -> str:
    """Return the page with a new table."""
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{table(results)}\n{END}{after}"


def stored() -> dict[str, Results]:
    """Return the committed outcomes by version of trl."""
    found: dict[str, Results] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


def main() -> int:
    """Compare results with the committed ones, or write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="*", type=Path)
    parser.add_argument("--write", action="store_true", help="write docs/stacks.json and the table")
    asked = parser.parse_args()
    known = stored() if RESULTS.exists() else {}
    new = [json.loads(path.read_text(encoding="utf-8")) for path in asked.results]
    if asked.write:
        for found in new:
            before = known.get(found["trl"], {}).get("trainers", {})
            known[found["trl"]] = {
                "packages": found["packages"],
                "trainers": before | found["trainers"],
            }
        known = {version: known[version] for version in sorted(known, key=version_key)}
        RESULTS.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), known), encoding="utf-8")
        return 0
    wrong = [line for found in new for line in _unlike(found, known.get(found["trl"], {}))]
    for line in wrong:
        print(line)
    return int(bool(wrong))


def _unlike(found: Results, known: Results) -> list[str]:
    """Return a line for each result that differs from the committed one."""
    lines = []
    for kind, outcome in found["trainers"].items():
        before = known.get("trainers", {}).get(kind)
        if outcome != before:
            was = "nothing" if before is None else before["outcome"]
            lines.append(
                f"trl {found['trl']}, {kind}: {outcome['outcome']} {list(outcome['notes'])}; "
                f"docs/stacks.json has {was} (nox -s stacks -- --write)"
            )
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
