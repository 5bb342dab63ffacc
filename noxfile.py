"""Sessions that need environments of their own: `nox -s stacks`, `nox -s stacks -- 0.19.1 1.16.0`.

Each stack is a version of trl with exact partners: `requirements/stacks/<trl>.txt`, and for the
newest the tested set of `constraints.txt`. The outcomes must be those of docs/stacks.json;
`nox -s stacks -- --write` writes that file and the table in docs/stacks.md anew.
"""

from __future__ import annotations

from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["stacks"]

NEWEST = "1.16.0"
STACKS = ("0.19.1", "0.29.1", "1.0.0", "1.12.0", NEWEST)
RESULTS = Path("build/stacks")


@nox.session
@nox.parametrize("trl", STACKS)
def stacks(session: nox.Session, trl: str) -> None:
    """Every trainer on one stack, in an environment of its own."""
    asked = [word for word in session.posargs if not word.startswith("-")]
    if asked and trl not in asked:
        session.skip("not asked for")
    # torch first and pinned: a looser requirement would fetch the newest CUDA build
    if trl == NEWEST:
        session.install("-c", "constraints.txt", "torch")
        session.install("-c", "constraints.txt", "-e", ".[train]")
    else:
        session.install("torch==2.13.0")
        session.install("--no-deps", "-r", f"requirements/stacks/{trl}.txt")
        session.install("--no-deps", "-e", ".")
    result = RESULTS / f"{trl}.json"
    session.run("python", "-m", "bench.stacks", str(result))
    options = ["--write"] if "--write" in session.posargs else []
    session.run("python", "-m", "bench.stacks_table", *options, str(result))
