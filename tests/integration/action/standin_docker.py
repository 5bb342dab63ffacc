"""A stand-in for docker: records how it is called, and runs the command line where an image would.

Called as `docker`, with STANDIN naming a folder: `calls.jsonl` there gets a line a call; `info` and
`refuse` in it decide what `docker info` and `docker run` answer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

TAKES_VALUE = (
    "--name", "--user", "--cap-drop", "--security-opt", "--pids-limit", "--tmpfs", "--shm-size",
    "--volume", "--env-file", "--env", "--gpus", "--network", "--log-driver", "--label",
)  # fmt: skip


def parsed(words: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Options of `docker run` with their values, and image and command."""
    options: dict[str, list[str]] = {}
    place = 0
    while place < len(words) and words[place].startswith("--"):
        name, equals, value = words[place].partition("=")
        if not equals and name in TAKES_VALUE:
            place += 1
            value = words[place]
        options.setdefault(name, []).append(value)
        place += 1
    return options, words[place:]


def inside(options: dict[str, list[str]]) -> dict[str, str]:
    """The container's environment, with its mounted folders as they are outside."""
    mounts = {}
    for volume in options.get("--volume", []):
        outside, target, *_ = volume.split(":")
        mounts[target] = outside
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}
    for line in Path(options["--env-file"][0]).read_text().splitlines():
        name, _, value = line.partition("=")
        environment[name] = value
    for item in options["--env"]:
        name, equals, value = item.partition("=")
        if equals:
            environment[name] = mounts.get(value, value)
        elif name in os.environ:
            environment[name] = os.environ[name]
    # Where the warm Python of the tests is: the trainings of several jobs import torch once.
    warm = {name: text for name, text in os.environ.items() if name.startswith("_RLHF_CANARY_")}
    return environment | warm | {"HOME": mounts["/scratch"]}


def main() -> int:
    folder = Path(os.environ["STANDIN"])
    words = sys.argv[1:]
    call = {"argv": words, "environ": dict(os.environ)}
    with (folder / "calls.jsonl").open("a") as stream:
        stream.write(json.dumps(call) + "\n")
    if words[0] == "info":
        print((folder / "info").read_text())
        return 0 if "Server Version" in (folder / "info").read_text() else 1
    if words[0] != "run":
        return 0
    if (folder / "refuse").exists():
        print((folder / "refuse").read_text(), file=sys.stderr)
        return 125
    options, (_, *command) = parsed(words[1:])
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parents[3] / "entrypoint.py"), *command],
        env=inside(options),
        cwd=inside(options)["CANARY_CHECKOUT"],
        check=False,
    )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
