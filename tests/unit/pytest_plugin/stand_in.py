"""A stand-in for `canary`: of a canary NAME it leaves the record `NAME.json`, as a new run."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path

import yaml

LOG = Path("trainings.jsonl")
OUT = Path("canary_output")
SECONDS = "STAND_IN_SECONDS"
"""Variable: how long it takes."""


def note(**what: object) -> None:
    with LOG.open("a") as file:
        file.write(json.dumps(what) + "\n")


def main(words: list[str]) -> int:
    config = yaml.safe_load(Path(words[1]).read_text()) if words[0] == "run" else {}
    for option, value in pairwise(words):
        if option == "--config":
            config |= yaml.safe_load(Path(value).read_text())
    record = Path(f"{config.get('name', 'train')}.json")
    for option, value in pairwise(words):
        if option == "--set" and value.startswith("name="):
            config["name"] = value.removeprefix("name=")
    note(what="begins", words=words, at=time.time())
    time.sleep(float(os.environ.get(SECONDS, 0)))
    note(what="ends", words=words, at=time.time())
    if record.stem == "nothing":
        print("canary: a note\ncanary: failed: no such data", file=sys.stderr)
        return 2
    named = {"name": config["name"]} if config.get("name", record.stem) != record.stem else {}
    return leave(words[0], json.loads(record.read_text()) | named)


def leave(verb: str, record: dict[str, object]) -> int:
    """Leave a record in a folder of its own, and name it as `canary` does."""
    for number in itertools.count(1):
        folder = OUT / f"20260202-{number:06}-{record['name']}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        break
    record |= {"run_id": folder.name, "timestamp": f"2026-02-02T00:00:{number:02}+00:00"}
    (folder / "metrics.json").write_text(json.dumps(record))
    failed = record["status"] != "completed"
    if failed:
        (folder / "log.txt").write_text("step 1\n\x1b[31mRuntimeError: it broke\x1b[0m\n")
    if verb == "exec":
        print("the command's own output")
        print(f"record: {folder.absolute()}", file=sys.stderr)
        return 7 if failed else 0  # The command's code.
    print(folder.absolute())
    return 4 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
