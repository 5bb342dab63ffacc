"""Sessions that need environments of their own: `nox -s stacks`, `nox -s stacks -- 0.19.1 1.16.0`.

Each stack is a version of trl with exact partners: `requirements/stacks/<trl>.txt`, and for the
newest the tested set of `constraints.txt`; where the Python that runs nox has that set, it serves.
The outcomes must be those of docs/stacks.json; `nox -s stacks -- --write` writes that file and the
table in docs/trainers.md anew. `--quick` leaves out the trainers that CI tests elsewhere.

`nox -s wandb` imports W&B's offline runs with wandb, which the tested set leaves out.
`nox -s release_candidate` makes the files of a release; `make release-candidate` brings its tools.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from importlib import metadata
from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["stacks"]

OLDEST, NEWEST = "0.19.1", "1.16.0"
STACKS = (OLDEST, "0.29.1", "1.0.0", "1.12.0", NEWEST)
QUICK = ("sft", "dpo", "reward", "grpo", "ppo", "trl_ppo")
WANDB = "wandb==0.31.0"
RESULTS = Path("build/stacks")
RELEASE = Path("build/release").resolve()
SAME_TOKENIZER = "W002"
"""check-wheel-contents: equal files. The embedded model and reward model have one tokenizer."""


@nox.session
@nox.parametrize("trl", STACKS)
def stacks(session: nox.Session, trl: str) -> None:
    """Every trainer on one stack, in an environment of its own."""
    asked = [word for word in session.posargs if not word.startswith("-")]
    if asked and trl not in asked:
        session.skip("not asked for")
    python = _tested_set_here() if trl == NEWEST else None
    if python is None:
        _install(session, trl)
        python = "python"
    result = RESULTS / f"{trl}.json"
    write = "--write" in session.posargs
    if write:
        session.run(python, "-m", "bench.stacks_arguments", external=python != "python")
    trainers = QUICK if "--quick" in session.posargs else ()
    # With --write a failure is an outcome, and the table says so.
    codes = [0, 1] if write else [0]
    command = (python, "-m", "bench.stacks", str(result), *trainers)
    session.run(*command, external=python != "python", success_codes=codes)
    table = (python, "-m", "bench.stacks_table", *(["--write"] if write else []), str(result))
    session.run(*table, external=python != "python")


@nox.session
def wandb(session: nox.Session) -> None:
    """Offline runs of W&B, read by wandb itself."""
    python = _tested_set_here()
    if python is None:
        session.skip("needs the tested set: run it with the Python of .venv")
    folder = session.create_tmp()
    session.run(
        *("python", "-m", "pip", "install", "-q", "--upgrade", "-c", "constraints.txt"),
        *("-t", folder, WANDB),
    )
    session.run(
        *(python, "-m", "pytest", "-q", "-k", "wandb", "tests/unit/imports"),
        external=True,
        env={"PYTHONPATH": folder},
    )


@nox.session(venv_backend="none")
def release_candidate(session: nox.Session) -> None:
    """Wheel, sdist, SBOM and hashes of HEAD, with the Python that has the tools.

    That Python also runs the demo; others that are named try the wheel without extras.
    """
    files, scratch = RELEASE / "files", RELEASE / "scratch"
    for folder in (files, scratch):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    source = scratch / "source"
    source.mkdir()
    session.run("git", "archive", "--output", f"{source}.tar", "HEAD")
    session.run("tar", "-xf", f"{source}.tar", "-C", str(source))
    version = _version_of(session, source)
    committed = str(session.run("git", "show", "-s", "--format=%ct", "HEAD", silent=True)).strip()
    # Not isolated: the backend is the locked one.
    build = (sys.executable, "-m", "build", "--no-isolation", "--outdir", str(files), str(source))
    session.run(*build, env={"SOURCE_DATE_EPOCH": committed})
    (wheel,), (sdist,) = files.glob("*.whl"), files.glob("*.tar.gz")
    session.run(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist))
    checker = Path(sys.executable).with_name("check-wheel-contents")
    session.run(str(checker), "--ignore", SAME_TOKENIZER, str(wheel))
    for python in session.posargs:
        _try_wheel(session, python, str(wheel), source)
    trained = _try_wheel(session, sys.executable, f"{wheel}[train,report]", source)
    sbom = ("--sv", "1.6", "--of", "JSON", "--output-reproducible", "-o")
    bill = files / f"rlhf_canary-{version}.cdx.json"
    session.run(
        *(sys.executable, "-m", "cyclonedx_py", "environment", *sbom, str(bill), str(trained))
    )
    hashes = [(hashlib.sha256(one.read_bytes()), one.name) for one in sorted(files.iterdir())]
    lines = [f"{digest.hexdigest()}  {name}\n" for digest, name in hashes]
    (files / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def _version_of(session: nox.Session, source: Path) -> str:
    """The version of the commit, which may be released and is the newest of the changelog."""
    (version,) = re.findall(
        r'(?m)^__version__ = "(.*)"$', (source / "canary" / "__init__.py").read_text()
    )
    session.run("bash", "scripts/release_check.sh", version)
    _, *released = re.findall(r"(?m)^## \[(.*?)\]", (source / "CHANGELOG.md").read_text())
    if released[:1] != [version]:
        session.error(f"CHANGELOG.md: its newest section is not [{version}]")
    return str(version)


def _try_wheel(session: nox.Session, python: str, wanted: str, source: Path) -> Path:
    """Install the wheel in a clean environment without a checkout; the demo, if it can train."""
    place = RELEASE / "scratch" / "clean"
    shutil.rmtree(place, ignore_errors=True)
    (place / "work").mkdir(parents=True)
    session.run(python, "-m", "venv", str(place / "env"))
    programs = place / "env" / "bin"
    pip = (str(programs / "python"), "-m", "pip", "--disable-pip-version-check")
    trains = wanted.endswith("]")
    # torch first and pinned, as in `make demo`
    for package in ("torch", wanted) if trains else (wanted,):
        session.run(*pip, "install", "--quiet", "-c", str(source / "constraints.txt"), package)
    session.run(*pip, "check")
    recorded = source / "baselines" / "examples"
    equal = (str(recorded / "sft_smoke_again.json"), str(recorded / "sft_smoke.json"))
    path = f"{programs}:{session.env.get('PATH', '')}"
    with session.chdir(place / "work"):
        for words in (("compare", *equal), ("demo",))[: 1 + trains]:
            session.run(*(str(programs / "canary"), *words), env={"PATH": path, "PYTHONPATH": None})
    return programs / "python"


def _pins_of(trl: str) -> list[str]:
    return Path(f"requirements/stacks/{trl}.txt").read_text(encoding="utf-8").splitlines()


def _install(session: nox.Session, trl: str) -> None:
    # torch first and pinned: a looser requirement would fetch the newest CUDA build
    if trl == NEWEST:
        session.install("-c", "constraints.txt", "torch")
        session.install("-c", "constraints.txt", "-e", ".[train]")
        return
    session.install("torch==2.13.0")
    session.install("--no-deps", "-r", f"requirements/stacks/{trl}.txt")
    session.install("--no-deps", "-e", ".")


def _tested_set_here() -> str | None:
    """This Python, where its training stack is that of constraints.txt to the letter."""
    pins = dict(re.findall(r"(?m)^([\w.-]+)==(\S+)$", Path("constraints.txt").read_text()))
    for name in ("torch", "trl", "transformers", "accelerate", "peft", "datasets", "tokenizers"):
        try:
            if metadata.version(name).partition("+")[0] != pins[name]:
                return None
        except metadata.PackageNotFoundError:
            return None
    return sys.executable
