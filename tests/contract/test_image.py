"""The image as its files promise it, without building it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from typer.main import get_command

import entrypoint
from canary.cli import app
from tests.contract.static_checks import clean

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
FOREIGN_UID = 54321
"""A uid that no passwd file names."""


def instructions() -> list[tuple[str, str]]:
    """Every instruction of the Dockerfile with its text on one line, without comments."""
    lines = [line for line in DOCKERFILE.splitlines() if not line.lstrip().startswith("#")]
    text = "\n".join(lines).replace("\\\n", " ")
    split = (line.strip().partition(" ") for line in text.splitlines() if line.strip())
    return [(name, " ".join(rest.split())) for name, _, rest in split]


def stages() -> list[list[tuple[str, str]]]:
    found: list[list[tuple[str, str]]] = []
    for name, rest in instructions():
        if name == "FROM":
            found.append([])
        if found:
            found[-1].append((name, rest))
    return found


def last(name: str) -> str:
    return [rest for found, rest in stages()[-1] if found == name][-1]


def variables() -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in last("ENV").split())


def pins(path: str) -> dict[str, str]:
    """Exact versions of a lock or constraints file, by normal name."""
    text = (ROOT / path).read_text(encoding="utf-8")
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s\\;]+)", text, flags=re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def test_every_base_is_pinned_by_digest_and_can_be_replaced() -> None:
    defaults = dict(
        rest.split("=", 1) for name, rest in instructions() if name == "ARG" and "=" in rest
    )
    built: set[str] = set()
    for stage in stages():
        base, _, alias = stage[0][1].partition(" AS ")
        if base not in built:
            assert re.fullmatch(r"\$\{\w+\}", base), f"{base} is not behind an ARG"
            assert re.search(r"@sha256:[0-9a-f]{64}$", defaults[base[2:-1]])
        built.add(alias)


def test_a_change_of_the_project_leaves_the_dependency_layers_alone() -> None:
    stack = stages()[0]
    copied = [rest.split()[:-1] for name, rest in stack if name in ("COPY", "ADD")]
    assert copied == [["requirements/torch.lock.txt"], ["requirements/image.lock.txt"]]
    installs = [rest for name, rest in stack if name == "RUN" and "pip install" in rest]
    assert len(installs) == 2
    for lock in ("torch.lock.txt", "image.lock.txt"):
        assert any(
            f"--require-hashes -r /opt/canary/requirements/{lock}" in rest for rest in installs
        )
    for stage in stages()[1:]:
        assert ("FROM", "stack") in stage or ("FROM", "stack AS project") in stage
        assert all("--no-deps" in rest for name, rest in stage if name == "RUN" and "pip" in rest)


def test_torch_for_older_drivers_is_a_build_argument() -> None:
    assert {"TORCH_VERSION=", "TORCH_INDEX_URL="} <= {
        rest for name, rest in stages()[0] if name == "ARG"
    }


def test_the_locks_are_the_tested_set_with_a_hash_for_each_package() -> None:
    torch, rest = pins("requirements/torch.lock.txt"), pins("requirements/image.lock.txt")
    assert not set(torch) & set(rest)
    assert "torch" in torch
    tested = pins("constraints.txt")
    locked = torch | rest
    assert {name: tested[name] for name in locked if name in tested} == {
        name: version for name, version in locked.items() if name in tested
    }
    for lock in ("torch", "image"):
        text = (ROOT / "requirements" / f"{lock}.lock.txt").read_text(encoding="utf-8")
        for paragraph in re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)[1:]:
            assert "--hash=sha256:" in paragraph, paragraph.splitlines()[0]


def test_the_locks_hold_everything_that_the_project_needs() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = project["dependencies"] + project["optional-dependencies"]["train"]
    names = {re.sub(r"[-_.]+", "-", re.split(r"[<>=!~\[; ]", one)[0]).lower() for one in needed}
    locked = pins("requirements/torch.lock.txt") | pins("requirements/image.lock.txt")
    assert names <= set(locked), "run requirements/lock.sh"


def test_the_image_runs_as_nobody_in_particular() -> None:
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", last("USER"))
    assert "chmod 1777 /scratch /records /workspace" in DOCKERFILE
    names = [name for name, _ in stages()[-1]]
    assert "RUN" not in names[names.index("USER") :]


def test_all_that_is_written_lies_on_the_scratch_folder() -> None:
    given = variables()
    assert given["CANARY_SCRATCH"] == "/scratch"
    for name, below in entrypoint.FOLDERS.items():
        assert Path(given[name]) == Path("/scratch") / below, name
    assert last("VOLUME") == "/scratch"


def test_a_uid_without_a_name_has_one_and_gpus_are_seen() -> None:
    given = variables()
    assert given["USER"] == given["LOGNAME"] == "canary"
    assert given["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert given["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"


def test_the_health_check_is_canary_env() -> None:
    assert last("HEALTHCHECK").endswith('CMD ["canary", "env"]')


def test_the_labels_say_what_the_image_is_and_from_what() -> None:
    labels = re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]+)"', last("LABEL"))
    assert {name for name, _ in labels} >= {
        "title", "description", "licenses", "version", "revision", "source",
    }  # fmt: skip


def test_entry_point_and_default_command() -> None:
    below_init = ["tini", "-s", "--", "python", "/opt/canary/entrypoint.py"]
    assert json.loads(last("ENTRYPOINT")) == below_init
    assert json.loads(last("CMD")) == ["--help"]
    assert "COPY entrypoint.py /opt/canary/entrypoint.py" in DOCKERFILE


def test_triton_has_a_compiler_and_a_mounted_checkout_is_trusted() -> None:
    [packages] = [rest for name, rest in stages()[0] if name == "RUN" and "apt-get" in rest]
    assert {"ca-certificates", "gcc", "git", "libc6-dev", "tini"} <= set(packages.split())
    assert "git config --system --add safe.directory /workspace" in packages


def test_dockerignore_lets_in_only_what_the_dockerfile_copies() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    allowed = {line[1:].split("/")[0] for line in rules if line.startswith("!")}
    copies = [rest for name, rest in instructions() if name == "COPY" and "--from=" not in rest]
    copied = {source for rest in copies for source in rest.split()[:-1]}
    assert allowed == {source.split("/")[0] for source in copied}
    assert not allowed & {".git", ".venv", "tests", "bench", "docs", "canary_output"}


def test_the_linter_of_dockerfiles_finds_nothing() -> None:
    clean(["hadolint", str(ROOT / "Dockerfile")])


def test_the_rootless_build_explains_itself_and_refuses_what_it_does_not_know() -> None:
    script = str(ROOT / "scripts" / "build_image_rootless.sh")
    shown = subprocess.run([script, "--help"], capture_output=True, text=True, check=False)
    assert shown.returncode == 0
    for option in ("--base", "--tag", "--torch-version", "--run"):
        assert option in shown.stdout
    for wrong in (["--bse", "x"], ["--tag"]):
        refused = subprocess.run([script, *wrong], capture_output=True, text=True, check=False)
        assert refused.returncode == 2
        assert wrong[0] in refused.stderr


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every uid can reach and write, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="image-") as name:
        Path(name).chmod(0o1777)
        yield Path(name)


def start(
    folder: Path, environ: Mapping[str, str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Runs the entry point as a program, with nothing in its environment but `environ`."""
    return subprocess.run(
        [sys.executable, str(ROOT / "entrypoint.py"), *arguments],
        cwd=folder,
        env=dict(environ),
        capture_output=True,
        text=True,
        check=False,
    )


def test_verbs_are_those_of_the_command_line(open_folder: Path) -> None:
    done = start(open_folder, {"CANARY_SCRATCH": str(open_folder)}, "--version")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("rlhf-canary ")
    wrong = start(open_folder, {"CANARY_SCRATCH": str(open_folder)}, "dance")
    assert wrong.returncode == 2


def test_sample_configs_are_found_where_nothing_is_mounted(open_folder: Path) -> None:
    given = {"CANARY_SCRATCH": str(open_folder)}
    done = start(open_folder, given, "config", "show", "configs/dpo_smoke.yaml")
    assert done.returncode == 0, done.stderr
    missing = start(open_folder, given, "config", "show", "configs/dpo_smok.yaml")
    assert missing.returncode == 2


def test_a_mounted_config_goes_before_a_sample(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (open_folder / "configs").mkdir()
    (open_folder / "configs" / "dpo_smoke.yaml").write_text("training_type: dpo\n")
    monkeypatch.chdir(open_folder)
    given = ["run", "configs/dpo_smoke.yaml"]
    assert entrypoint.completed(given, open_folder) == given


def test_every_verb_with_an_output_folder_gets_another_one() -> None:
    commands = get_command(app).commands.items()  # type: ignore[attr-defined]
    given = {name: {text for one in verb.params for text in one.opts} for name, verb in commands}
    assert sorted(v for v, opts in given.items() if "--output-dir" in opts and v != "init") == (
        sorted(entrypoint.WRITING)
    )


def test_run_folders_go_elsewhere_when_the_checkout_is_read_only(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entrypoint, "writable", lambda folder: folder == entrypoint.RECORDS)
    there = ["run", "--output-dir", str(entrypoint.RECORDS), "canary.yaml"]
    assert entrypoint.completed(["run", "canary.yaml"], open_folder) == there
    monkeypatch.setattr(entrypoint, "writable", lambda folder: False)
    there[2] = str(open_folder / "records")
    assert entrypoint.completed(["run", "canary.yaml"], open_folder) == there
    for kept in (
        ["run", "-o", "here"],
        ["run", "--output-dir=here"],
        ["env"],
        ["compare", "a"],
        [],
    ):
        assert entrypoint.completed(kept, open_folder) == kept
    # What stands behind -- is the user's command, whatever its options are called.
    bisect = ["bisect", "--output-dir", f"{there[2]}/bisect", "canary.yaml"]
    assert entrypoint.completed(["bisect", "canary.yaml"], open_folder) == bisect
    there = ["exec", "--output-dir", there[2], "--", "train", "-o", "x"]
    assert entrypoint.completed(["exec", "--", "train", "-o", "x"], open_folder) == there


def test_caches_follow_the_scratch_folder_and_what_the_user_set_stays(open_folder: Path) -> None:
    environ = {name: str(Path("/scratch") / below) for name, below in entrypoint.FOLDERS.items()}
    environ["HF_HOME"] = "/models"
    entrypoint.settle(environ, Path("/scratch"), open_folder)
    assert environ.pop("HF_HOME") == "/models"
    for name in set(entrypoint.FOLDERS) - {"HF_HOME"}:
        assert Path(environ[name]).is_relative_to(open_folder), name
        assert Path(environ[name]).is_dir(), name
    assert environ["USER"] == environ["LOGNAME"] == "canary"


WHO = """
import getpass, os, pwd, sys
sys.path.insert(0, {root!r})
import canary.cli, entrypoint
os.setgroups([])
os.setgid({uid})
os.setuid({uid})
try:
    entrypoint.main(os.environ, ["--version"])
except SystemExit as end:
    assert not end.code, end.code
home = os.path.expanduser("~")
print(getpass.getuser(), os.access(home, os.W_OK), os.getuid(), home)
"""
"""Takes the uid on after its imports, as a developer's Python may lie in a home that is closed."""


def open_to_others(path: Path) -> bool:
    """Whether another uid gets to a folder at all; a clone in a private folder is closed."""
    return all(part.stat().st_mode & 0o001 for part in (path, *path.parents))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take on another uid")
@pytest.mark.skipif(not open_to_others(ROOT), reason="the checkout lies in a private folder")
def test_a_foreign_uid_without_home_or_passwd_entry_works(open_folder: Path) -> None:
    """`--user 54321:54321` with a home of `/`, and a scratch folder that belongs to another."""
    closed = open_folder / "closed"
    closed.mkdir(mode=0o700)
    done = subprocess.run(
        [sys.executable, "-c", WHO.format(root=str(ROOT), uid=FOREIGN_UID)],
        cwd=open_folder,
        env={"HOME": "/", "CANARY_SCRATCH": str(closed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *who, home = done.stdout.splitlines()[-1].split()
    shutil.rmtree(home)
    assert who == ["canary", "True", str(FOREIGN_UID)]


def test_nothing_writable_is_one_clear_line_and_no_regression(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(entrypoint, "TEMPORARY", (open_folder / "absent",))
    with pytest.raises(SystemExit) as end:
        entrypoint.main({"CANARY_SCRATCH": str(open_folder / "gone")}, ["env"])
    assert end.value.code == 4
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"--volume FOLDER:{open_folder / 'gone'}" in said


def test_a_container_whose_starter_is_gone_ends_by_its_own_limit() -> None:
    code = "import entrypoint, os, sys, time; sys.modules['canary.cli'] = type(sys)('cli'); "
    code += "sys.modules['canary.cli'].main = lambda _: time.sleep(60); "
    code += "entrypoint.main(os.environ, ['gate', 'run'])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "CANARY_LIMIT_S": "1"},
        timeout=30,
        check=False,
    )
    assert done.returncode == -signal.SIGALRM


SCRIPT = Path(__file__).parents[2] / "scripts" / "build_image_rootless.sh"


def run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """With programs that know of no image."""
    for name in ("buildah", "podman", "crun"):
        program = tmp_path / name
        program.write_text('#!/bin/sh\ncase "$*" in *exists*) exit 1 ;; esac\necho ran\n')
        program.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [str(SCRIPT), *arguments],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_image_that_was_never_built_cannot_be_run(tmp_path: Path) -> None:
    done = run(tmp_path, "--no-build", "--run", "demo")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "build_image_rootless: there is no image localhost/rlhf-canary: "
        "build it first, without --no-build"
    ]


def test_neither_building_nor_running_is_no_use(tmp_path: Path) -> None:
    for arguments in (["--no-build"], ["--no-build", "--run"]):
        done = run(tmp_path, *arguments)
        assert done.returncode == 2
        assert "--no-build does nothing without --run" in done.stderr
