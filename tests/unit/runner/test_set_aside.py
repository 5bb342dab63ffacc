"""A command that runs a second time starts from what the first launch started from, and leaves
nothing. Nothing trains here: the scripts do to their files what training scripts do."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from canary.protocol.job import Job, Kind
from canary.runner.exec import command, file_notes, left_files, put_back
from canary.runner.exec.command import attached_environment, marks_of
from canary.runner.exec.left_files import Refused
from canary.runner.exec.relaunch import UserFiles, forget_files
from canary.runner.exec.set_aside import set_aside
from canary.runner.exec.start_command import STDIN, started_with
from canary.runner.exec.streams import pipe_name

NOBODY = 23456

SEEN = """
import os, sys
def UNNOTICED(path):
    import ctypes
    libc = ctypes.CDLL(None)
    libc.close(libc.creat(os.fsencode(path), 0o600))
for root, folders, files in os.walk("."):
    folders[:] = sorted(name for name in folders if name != "runs" and "aside" not in name)
    for name in sorted(files):
        place = os.path.join(root, name)
        print(place, open(place, "rb").read() if os.path.exists(place) else os.readlink(place))
    print(root, [n for n in folders])
sys.stdout.flush()
"""
"""What a script finds at its start."""
TRAINS = """
import os
with open(os.path.join(os.path.dirname(os.environ["_RLHF_CANARY_MARKS"]), "claim"), "x") as stream:
    stream.write(str(os.getpid()))
"""
"""What the process does that trains."""


@dataclass
class Place:
    """A user's folder, with a run of the canary in `runs`."""

    root: Path
    user: int | None = None
    output: Path | None = None
    launches: int = 0
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.run = (self.output or self.root / "runs") / "run1"
        self.run.mkdir(parents=True)
        self.folder: Any = SimpleNamespace(path=self.run)
        session: Any = SimpleNamespace(
            folder=self.folder,
            record=SimpleNamespace(notes=self.notes),
            config=SimpleNamespace(repeats=1),
            copied=None,
        )
        self.files = UserFiles(session)

    def job(self) -> Job:
        kind: Kind = "probe" if self.launches else "measured"
        scratch = self.run / ".scratch" / f"launch{self.launches}"
        job = Job(
            kind=kind,
            launch=self.launches,
            config_file="",
            rows_file="",
            result_file="",
            scratch_dir=str(scratch),
            cache_dir="",
            rows_dir="",
            stop_after=3 if self.launches else None,
            files=str(self.files.folder_of(self.launches)),
        )
        marks_of(job).mkdir(parents=True)
        self.launches += 1
        return job

    def launch(self, *words: str, stdin: str = "") -> str:
        """Runs a command as one launch, or, after the first one, what trained in it; what it
        printed."""
        if not self.launches:
            time.sleep(file_notes.CLOCK_S)  # what was written before is older than the launch
        start = self.files.start
        job = self.job()
        with self.files.around(job):
            base = dict(os.environ) if start is None else started_with(start, dict(os.environ))
            read, write = os.pipe()
            os.write(write, stdin.encode())
            os.close(write)
            done = subprocess.run(
                words if start is None else start.words,
                cwd=self.root if start is None else start.cwd,
                env=attached_environment(base, job, Path("none"), marks_of(job))
                | {STDIN: pipe_name(read)},
                stdin=read,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            os.close(read)
            self.claimed(job)
        refusal = next(marks_of(job).glob("refused.*"), None)
        if refusal is not None:
            return refusal.read_text()
        assert done.returncode == 0, done.stderr
        return done.stdout

    def claimed(self, job: Job) -> None:
        """The process that the script called `trains` in is the one that trains, or else the first
        that was seen."""
        seen = sorted(marks_of(job).glob("seen.*"), key=lambda mark: mark.stat().st_ctime_ns)
        claim = Path(job.scratch_dir) / "claim"
        if seen and not claim.exists():
            claim.write_text(seen[0].name.split(".")[1])

    def tree(self) -> dict[str, object]:
        """Of each file its content, mode, links and times, and the folders."""
        found: dict[str, object] = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            if name.split("/")[0] == "runs":
                continue
            state = path.lstat()
            kept: tuple[object, ...] = (stat.filemode(state.st_mode), state.st_nlink)
            if path.is_symlink():
                kept = ("->", str(path.readlink()))
            elif path.is_file():
                kept = (*kept, path.read_bytes(), state.st_mtime_ns, state.st_ino)
            found[name] = kept
        return found


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def twice(place: Place, script: str) -> None:
    """Two launches: the second sees what the first saw, and leaves what the first left."""
    (place.root / "train.py").write_text(SEEN + textwrap.dedent(script))
    first = place.launch(sys.executable, "train.py")
    left_behind = place.tree()
    second = place.launch(sys.executable, "train.py")
    assert second == first
    assert place.tree() == left_behind
    assert place.notes == []
    forget_files(place.folder)
    assert not (place.run / "set-aside").exists()


def earlier(root: Path) -> None:
    """What earlier runs of the user's left."""
    (root / "out" / "checkpoint-2").mkdir(parents=True)
    (root / "out" / "checkpoint-2" / "model.pt").write_text("two")
    (root / "out" / "notes").write_text("mine")
    (root / "out" / "notes").chmod(0o640)
    os.link(root / "out" / "notes", root / "same")
    (root / "train.log").write_text("earlier\n")
    (root / "latest").symlink_to("out/checkpoint-2")


SCRIPTS = {
    "appends to its log": 'open("train.log", "a").write(str(os.getpid()))',
    "rotates its log": """
        if os.path.exists("train.log"): os.rename("train.log", "train.log.1")
        open("train.log", "x").write(str(os.getpid()))
        open("train.log.1", "a").write(str(os.getpid()))
    """,
    "starts from an empty folder": """
        import shutil
        shutil.rmtree("out", ignore_errors=True)
        os.mkdir("out")
        open("out/model.pt", "w").write(str(os.getpid()))
    """,
    "replaces what it saved": """
        for step in range(3):
            open("state.tmp", "w").write(f"{step} {os.getpid()}")
            os.replace("state.tmp", "state.json")
            open("train.tmp", "w").write(f"{step} {os.getpid()}")
            os.replace("train.tmp", "train.log")
    """,
    "keeps the newest checkpoint": """
        import shutil
        for step in (3, 4):
            os.makedirs(f"out/checkpoint-{step}", exist_ok=True)
            open(f"out/checkpoint-{step}/model.pt", "w").write(str(os.getpid()))
            shutil.rmtree(f"out/checkpoint-{step - 1}", ignore_errors=True)
            if os.path.lexists("latest"): os.remove("latest")
            os.symlink(f"out/checkpoint-{step}", "latest")
    """,
    "names by process": """
        os.mkdir(f"run-{os.getpid()}")
        open(f"run-{os.getpid()}/log", "w").write("x")
        open(f"{os.getpid()}.log", "w").write("x")
    """,
    "writes through another folder": """
        os.makedirs("out", exist_ok=True)
        os.chdir("out")
        open("notes", "a").write(str(os.getpid()))
        open("../same", "a").write("x")
    """,
    "keeps a database": """
        import sqlite3
        with sqlite3.connect("runs.db") as base:
            base.execute("create table if not exists runs (pid)")
            base.execute("insert into runs values (?)", (os.getpid(),))
    """,
    "forks": """
        child = os.fork()
        if not child:
            open("final.pt", "w").write(str(os.getpid())); os._exit(0)
        os.waitpid(child, 0)
        open("final.pt", "a").write(str(os.getpid()))
    """,
    "makes pipes, sockets and shared memory": """
        import socket
        from multiprocessing.shared_memory import SharedMemory
        os.mkfifo("pipe"); os.remove("pipe")
        with socket.socket(socket.AF_UNIX) as one: one.bind("socket")
        os.remove("socket")
        block = SharedMemory("canary-test-block", create=True, size=8)
        block.close(); block.unlink()
    """,
    "changes a mode": """
        open("locked", "w").write(str(os.getpid()))
        os.chmod("locked", 0o400)
    """,
}


@pytest.mark.spread(8)
@pytest.mark.parametrize("had", [False, True], ids=["fresh", "again"])
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=[*SCRIPTS])
def test_a_second_launch_sees_and_leaves_what_the_first_did(
    tmp_path: Path, script: str, had: bool
) -> None:
    if had:
        earlier(tmp_path)
    twice(Place(tmp_path), script)


@pytest.mark.slow
def test_what_writes_from_native_code_is_heard(tmp_path: Path) -> None:
    script = """
        import importlib.util
        assert importlib.util.find_spec("tokenizers")  # transformers looks before it loads
        import torch
        from safetensors.torch import save_file
        from tokenizers import Tokenizer, models
        os.makedirs("best", exist_ok=True)
        weights = {"a": torch.full((3,), float(os.getpid()))}
        torch.save(weights, "best/model.pt")
        save_file(weights, "best/model.safetensors")
        Tokenizer(models.WordLevel({str(os.getpid()): 0})).save("best/tokenizer.json")
        from pyarrow import parquet, table
        parquet.write_table(table({"pid": [os.getpid()]}), "best/rows.parquet")
        os.makedirs("own", exist_ok=True)
        Tokenizer(models.WordLevel({str(os.getpid()): 0})).model.save("own", "a")
    """
    (tmp_path / "best").mkdir()
    for name in ("model.pt", "model.safetensors", "tokenizer.json", "rows.parquet"):
        (tmp_path / "best" / name).write_text("earlier")
    twice(Place(tmp_path), script)


@pytest.mark.parametrize("mark", [">", ">>"])
def test_a_log_that_a_shell_writes_is_the_first_launchs(tmp_path: Path, mark: str) -> None:
    (tmp_path / "log.txt").write_text("earlier\n")
    place = Place(tmp_path)
    line = f"{sys.executable} -c 'import os; print(os.getpid())' {mark} log.txt"
    place.launch("bash", "-c", line)
    left_behind = place.tree()
    place.launch("bash", "-c", line)
    assert place.tree() == left_behind
    assert place.notes == []


@pytest.mark.parametrize("written", ["train.log", "made"])
def test_what_is_written_unnoticed_while_it_trains_stops_the_second_launch(
    tmp_path: Path, written: str
) -> None:
    """Native code of the training itself may have done it."""
    earlier(tmp_path)
    lines = {
        "train.log": "echo $$ >> train.log",
        "made": "mkdir -p made; echo $$ > made/file",
    }
    place = Place(tmp_path)
    script = "import time; time.sleep(1)"
    place.launch(
        "bash", "-c", f"{sys.executable} -c '{script}' & sleep 0.5; {lines[written]}; wait"
    )
    assert refused(place).startswith(f"{tmp_path}/{written} changed during the training")


STAGES = f"""
set -e
export STAGE=two
mkdir -p data logs kept
{sys.executable} -c 'open("data/rows", "a").write("rows ")'
mv logs/old logs/older 2> logs/errors || true
{sys.executable} train.py data/rows 2>&1 | tee logs/old
{sys.executable} -c 'open("out/eval", "w").write("good")'
sleep 0.1
cp out/model kept/model.$$
mv out/second second
rm -f data/rows
tar cf kept.tar kept
ln -sfn kept latest
"""
"""A training among other stages."""


def test_of_a_shell_script_only_the_training_is_done_twice(tmp_path: Path) -> None:
    """It finds what the stage before it left, and what the later ones did stays."""
    earlier(tmp_path)
    (tmp_path / "all.sh").write_text(STAGES)
    (tmp_path / "train.py").write_text(
        TRAINS
        + "import sys\n"
        + "found = os.path.exists('out/model'), os.path.exists('second'), os.environ['STAGE']\n"
        + "os.makedirs('out', exist_ok=True)\n"
        + "for name in ('model', 'second'): open(f'out/{name}', 'a').write(str(os.getpid()))\n"
        + "os.chdir('/')\n"
        + "print(*sys.argv, *found)\n"
    )
    place = Place(tmp_path)
    first = place.launch("bash", "all.sh")
    left_behind = place.tree()
    assert first == "train.py data/rows False False two\n"
    second = place.launch()
    # What a later stage renamed stays where that put it.
    assert second == first.replace("False False", "False True")
    assert place.tree() == left_behind
    assert place.notes == []


def test_rows_that_another_program_appends_meanwhile_are_kept(tmp_path: Path) -> None:
    """Two jobs of a sweep write to one table."""
    table = tmp_path / "results.csv"
    table.write_text("earlier\n")
    (tmp_path / "train.py").write_text("open('results.csv', 'a').write('mine\\n')")
    place = Place(tmp_path)
    place.launch(sys.executable, "train.py")
    before = table.read_text()
    job = place.job()
    with place.files.around(job):
        environment = attached_environment(os.environ, job, Path("none"), marks_of(job))
        for one in ([sys.executable, "train.py"], [sys.executable, "-I", "train.py"]):
            subprocess.run(one, env=environment, check=True, timeout=30)
    assert table.read_text() == before
    (said,) = place.notes
    assert said.startswith(f"{table}: another program wrote to it during the second launch")
    kept = Path(said.rpartition(" is at ")[2])
    assert kept.read_text() == "earlier\n" + "mine\n" * 2


def test_a_folder_that_a_script_locks_is_put_back_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Root may do all of it: another user may not remove a file from a folder of mode 0555."""
    with tempfile.TemporaryDirectory() as name:
        monkeypatch.chdir(name)
        place = Place(Path(name))
        script = """
            import os
            os.makedirs("out/best"); open("out/best/model", "w").write(str(os.getpid()))
            os.chmod("out/best", 0o555)
        """
        root = second_launch_ran(place, script)
        mine = (root / "aside" / "0" / "out" / "best" / "model").read_text()
        os.chown(name, NOBODY, NOBODY)
        for path in Path(name).rglob("*"):
            os.chown(path, NOBODY, NOBODY)
        child = os.fork()
        if not child:
            code = 1
            with contextlib.suppress(BaseException):
                if os.getuid() == 0:
                    os.setuid(NOBODY)
                code = 0 if put_back.put_back(root) == [] else 2
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert Path(name, "out", "best", "model").read_text() == mine
        assert stat.S_IMODE(Path(name, "out", "best").stat().st_mode) == 0o555
        monkeypatch.undo()


SPAWNED = (
    "import multiprocessing.util as m; m.spawnv_passfds(sys.executable.encode(), "
    """[sys.executable, '-c', 'open("copy", "w")'], []); os.wait()"""
)


@pytest.mark.parametrize(
    ("call", "program"),
    [
        ("subprocess.run('git rev-parse HEAD; cp note copy', shell=True)", "cp"),
        ("subprocess.run('uname -r > copy', shell=True)", "sh"),
        ("subprocess.run([sys.executable, '-I', '-c', 'open(\"copy\", \"w\")'])", "python"),
        ("os.system('touch copy')", "touch"),
        ("os.posix_spawnp('touch', ['touch', 'copy'], os.environ)", "touch"),
        ("os.execvp('touch', ['touch', 'copy'])", "touch"),
        ("subprocess.run(['git', 'diff', '--output=copy'])", "git"),
        ("os.environ.clear(); subprocess.run(['/usr/bin/touch', 'copy'])", "touch"),
        ("subprocess.run(['./date'])", "date"),
        ("os.system('PYTHONPATH=src python -c 1')", "a program in another environment"),
        (f"del os.environ['PYTHONPATH']; {SPAWNED}", "python"),
    ],
)
def test_a_second_launch_is_ended_before_a_program_that_may_write_unnoticed(
    tmp_path: Path, call: str, program: str
) -> None:
    is_second = "os.environ['_RLHF_CANARY_FILES'].startswith('protect')"
    (tmp_path / "note").touch()
    (tmp_path / "date").write_text("#!/bin/sh\ntouch copy")
    (tmp_path / "date").chmod(0o755)
    (tmp_path / "train.py").write_text(f"import os, subprocess, sys\nif {is_second}: {call}\n")
    place = Place(tmp_path)
    place.launch(sys.executable, "train.py")
    said = place.launch()
    assert said.startswith(f"start {program}"), said
    assert "which may write files unnoticed by the canary" in said
    assert not (tmp_path / "copy").exists()


def test_a_folder_that_became_a_symlink_stops_the_second_launch(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "out").mkdir()
    place = Place(tmp_path)
    script = "import os; open('out/x', 'w'); os.rename('out', 'old'); os.symlink('data', 'out')"
    place.launch(sys.executable, "-c", script)
    assert refused(place) == f"a folder above {tmp_path}/out/x is now a symlink"


def test_nothing_is_removed_or_put_behind_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    place = Place(tmp_path)
    place.launch(sys.executable, "-c", "open('out/x', 'w').write('first')")
    with place.files.around(place.job()):
        (tmp_path / "out").rename(tmp_path / "old")
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "x").write_text("mine")
        (tmp_path / "out").symlink_to("data")
    assert (tmp_path / "data" / "x").read_text() == "mine"
    assert Path(place.notes[-1].rpartition(" is at ")[2]).read_text() == "first"


def refused(place: Place) -> str:
    """Why a second launch is not begun."""
    left_behind = place.tree()
    with pytest.raises(Refused) as why, place.files.around(place.job()):
        raise AssertionError("it began")
    assert place.tree() == left_behind
    forget_files(place.folder)
    assert not (place.run / "set-aside").exists()
    return str(why.value)


def test_a_file_too_large_to_keep_stops_the_second_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    with (tmp_path / "huge.bin").open("wb") as stream:
        stream.truncate(file_notes.KEPT_BYTES + 1)
    place.launch(sys.executable, "-c", "open('small', 'w'); open('huge.bin', 'r+b').write(b'x')")
    said = refused(place)
    too_large = "is too large to keep a copy (268,435,457 bytes)"
    assert said == f"the command changes {tmp_path}/huge.bin, which {too_large}"


def test_what_another_program_writes_meanwhile_stays_and_the_first_ones_is_found(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path)
    place.launch(sys.executable, "-c", "open('notes.md', 'w').write('first')")
    with place.files.around(place.job()):
        (tmp_path / "notes.md").write_text("by hand, meanwhile")
    assert (tmp_path / "notes.md").read_text() == "by hand, meanwhile"
    said, where = place.notes
    assert said.startswith(f"{tmp_path}/notes.md stays as it is: a shell or another program wrote")
    assert Path(where.rpartition(" is at ")[2]).read_text() == "first"


def test_a_new_folder_that_another_job_writes_to_is_not_moved(tmp_path: Path) -> None:
    place = Place(tmp_path)
    line = f"{sys.executable} -c 'import os; os.makedirs(\"outputs/a\")'; mkdir outputs/b"
    place.launch("bash", "-c", line)
    assert refused(place) == f"the canary did not see what wrote {tmp_path}/outputs/b"


def test_what_the_first_launch_left_running_stops_the_second(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.launch("bash", "-c", f"{sys.executable} -c 1; sleep 20 >/dev/null 2>&1 & echo $! >pid")
    number = int((tmp_path / "pid").read_text())
    try:
        assert refused(place) == "sleep, started by the command, still runs"
    finally:
        os.kill(number, 9)


def test_a_second_launch_that_changes_what_the_first_did_not_is_undone(tmp_path: Path) -> None:
    earlier(tmp_path)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "file").write_text("mine")
    place = Place(tmp_path)
    script = (
        "import os, shutil\n"
        "open('a', 'x')\n"
        "if os.environ['_RLHF_CANARY_FILES'].startswith('protect'):\n"
        "  open('out/notes', 'a').write('more'); os.remove('train.log'); os.remove('latest')\n"
        "  os.rename('out/checkpoint-2', 'new'); shutil.rmtree('deep')\n"
    )
    (tmp_path / "train.py").write_text(script)
    place.launch(sys.executable, "train.py")
    left_behind = place.tree()
    place.launch(sys.executable, "train.py")
    assert place.tree() == left_behind


def test_what_a_second_launch_leaves_running_ends_before_files_come_back(tmp_path: Path) -> None:
    place = Place(tmp_path)
    script = """
        import subprocess
        writer = "import time\\nwhile True:\\n    open('log', 'a').write('x'); time.sleep(0.01)"
        if os.environ["_RLHF_CANARY_FILES"].startswith("protect"):
            subprocess.Popen([sys.executable, "-c", writer], start_new_session=True,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        open("log", "w").write("mine")
    """
    twice(place, script)
    time.sleep(0.1)
    assert (tmp_path / "log").read_text() == "mine"


def test_files_come_back_when_the_canary_is_killed(tmp_path: Path) -> None:
    place = Place(tmp_path)
    script = "open('final.pt', 'w').write('first')"
    place.launch(sys.executable, "-c", script)
    left_behind = place.tree()
    job = place.job()
    child = os.fork()
    if not child:
        with place.files.around(job):
            assert not (tmp_path / "final.pt").exists()
            (tmp_path / "begun").touch()
            time.sleep(60)
        os._exit(1)
    deadline = time.monotonic() + 30
    while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not (tmp_path / "final.pt").exists()
    (tmp_path / "begun").unlink()
    os.kill(child, 9)
    os.waitpid(child, 0)
    while (place.run / "set-aside").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert place.tree() == left_behind
    assert not (place.run / "set-aside").exists()


def test_what_a_stopped_machine_left_aside_is_put_back_by_hand(tmp_path: Path) -> None:
    earlier(tmp_path)
    place = Place(tmp_path)
    (tmp_path / "train.py").write_text("import os\n" + textwrap.dedent(SCRIPTS["rotates its log"]))
    place.launch(sys.executable, "train.py")
    left_behind = place.tree()
    root = place.run / "set-aside"
    set_aside(root, 1, left_files.left_by(root / "launch0"))
    assert place.tree() != left_behind
    words = (root / "README.txt").read_text()
    command = next(line.strip() for line in words.splitlines() if line.startswith("    "))
    subprocess.run(command.split(), check=True, timeout=30)
    assert place.tree() == left_behind
    subprocess.run(command.split(), check=True, timeout=30)
    assert place.tree() == left_behind


def second_launch_ran(place: Place, script: str) -> Path:
    """Both launches ran, and nothing is back yet; the folder with what was set aside."""
    (place.root / "train.py").write_text(textwrap.dedent(script))
    place.launch(sys.executable, "train.py")
    root, job = place.run / "set-aside", place.job()
    place.files.folder_of(1).mkdir()
    set_aside(root, 1, left_files.left_by(root / "launch0"))
    environment = attached_environment(os.environ, job, Path("none"), marks_of(job))
    subprocess.run([sys.executable, "train.py"], env=environment, check=True, timeout=30)
    return root


CHANGES = """
    import os, shutil
    os.makedirs("new/deep")
    open("new/deep/model", "w").write(str(os.getpid()))
    open("train.log", "a").write(str(os.getpid()))
    if os.environ["_RLHF_CANARY_FILES"].startswith("protect"):
        shutil.rmtree("out"); os.remove("same"); os.remove("latest")
"""


def test_files_come_back_where_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two names of one file, a journal and notes with broken lines, and all of it once more."""
    earlier(tmp_path)
    root = second_launch_ran(Place(tmp_path), CHANGES)
    with (root / "journal").open("a") as stream:
        stream.write('[]\n{"path": 5}\n{"times": "x", "ns": 3}\n{"path"\n')
    notes = next((root / "launch1").glob("notes.*"))
    notes.write_bytes(b"17\0N\0" + notes.read_bytes() + b"x\0")
    monkeypatch.setattr(put_back, "_tidy", lambda *_: None)
    assert put_back.put_back(root) == []
    assert (tmp_path / "same").samefile(tmp_path / "out" / "notes")
    after = Path("new/deep/model").read_text(), Path("train.log").read_text()
    lines = (root / "journal").read_text().splitlines()
    (root / "journal").write_text(
        "\n".join(one for one in lines if not one.endswith(": true}") or "path" in one) + "\n"
    )
    for _ in range(2):
        assert put_back.put_back(root) == []
        assert after == (Path("new/deep/model").read_text(), Path("train.log").read_text())
        assert (tmp_path / "same").samefile(tmp_path / "out" / "notes")
        assert (tmp_path / "latest").readlink() == Path("out/checkpoint-2")


def test_one_file_that_cannot_come_back_keeps_no_other_away(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    script = "for name in 'abc': open(f'{name}/file', 'w').write('x')"
    root = second_launch_ran(Place(tmp_path), script)
    (tmp_path / "b" / "file").unlink()
    (tmp_path / "b").rmdir()
    (tmp_path / "b").touch()
    (told,) = put_back.put_back(root)
    assert told.startswith(f"{tmp_path}/b/file cannot be put back")
    assert (tmp_path / "a" / "file").read_text() == (tmp_path / "c" / "file").read_text() == "x"
    (tmp_path / "b").unlink()
    assert put_back.put_back(root) == []
    assert (tmp_path / "b" / "file").read_text() == "x"


def test_by_hand_what_is_newer_than_the_second_launch_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(put_back, "LATER_NS", 0)
    earlier(tmp_path)
    root = second_launch_ran(Place(tmp_path), CHANGES.replace("shutil.rmtree", "() and print"))
    time.sleep(0.1)
    (tmp_path / "train.log").write_text("days later")
    (tmp_path / "new" / "deep" / "more").write_text("days later")
    told = put_back.put_back(root, by_hand=True)
    assert (tmp_path / "train.log").read_text() == "days later"
    assert (tmp_path / "new" / "deep" / "more").read_text() == "days later"
    assert (tmp_path / "new" / "deep" / "model").exists()
    assert f"{tmp_path}/train.log stays as it is: it is newer than the second launch" in told
    assert len([*(root / "found").rglob("train.log")]) == 1


def test_what_was_kept_stays_until_it_could_be_restored(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "log").write_text("mine")
    script = """
        import os
        if os.environ["_RLHF_CANARY_FILES"].startswith("protect"): os.remove("out/log")
    """
    root = second_launch_ran(Place(tmp_path), script)
    (tmp_path / "out").rmdir()
    (tmp_path / "out").touch()
    (told,) = put_back.put_back(root)
    assert told.startswith(f"{tmp_path}/out/log cannot be put back, its earlier state is in {root}")
    (tmp_path / "out").unlink()
    assert put_back.put_back(root) == []
    assert (tmp_path / "out" / "log").read_text() == "mine"


@pytest.mark.parametrize("module", ["runner/exec/file_notes", "training/attach/programs"])
def test_a_python_in_which_notes_fail_is_not_followed_by_a_second_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    """It may be older than the canary's own, and lack what a module imports."""
    package = tmp_path / "package"
    for folder in ("training/attach", "runner/exec", "config"):
        shutil.copytree(command.SITE.parents[2] / folder, package / folder)
    (package / f"{module}.py").write_text("from itertools import nothing_of_it")
    monkeypatch.setattr(command, "SITE", package / "training" / "attach" / "site")
    (tmp_path / "job").mkdir()
    monkeypatch.chdir(tmp_path / "job")
    place = Place(tmp_path / "job")
    place.launch(sys.executable, "-c", "open('final.pt', 'w').write('first')")
    if module.endswith("file_notes"):
        said = refused(place)
        assert said.startswith("the canary could not note what the command changes: ImportError")
    else:
        assert place.launch().startswith(
            "run while the canary cannot note its changes (ImportError"
        )
    assert (tmp_path / "job" / "final.pt").read_text() == "first"


@pytest.mark.parametrize("name", ["JOB", "FILES"])
def test_a_variable_of_the_users_own_means_nothing_to_the_canary(tmp_path: Path, name: str) -> None:
    job = Place(tmp_path).job()
    environment = attached_environment({f"CANARY_{name}": "30"}, job, Path("job"), Path("marks"))
    assert environment[f"CANARY_{name}"] == "30"
    done = subprocess.run(
        [sys.executable, "-c", "print('ran')"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("ran\n", "")
