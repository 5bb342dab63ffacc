"""The training job's check: what it is asked, what it leaves, and why there may be no answer."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from canary.config.load import load_config
from canary.gate import check_job
from canary.gate.asked import Canary, base_of
from canary.gate.base_config import git_reader
from canary.gate.check_job import ask_relations, held_check
from canary.gate.inputs import TrainSettings
from canary.gate.workspace import Place

CONFIG = "training_type: sft\nname: tiny\nmax_steps: 20\ncheck:\n  skip: [workers]\n"


class Job:
    """A training job whose child is a line of shell; it notes the words of `canary check`."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.checkout = root / "checkout"
        self.checkout.mkdir()
        (self.checkout / "canary.yaml").write_text(CONFIG)
        self.records, self.words, self.shell = root / "records", list[str](), "true"
        (self.records / "00").mkdir(parents=True)
        self.place = Place(self.checkout, self.checkout, root / "python", {}, root / "runs")
        monkeypatch.setattr(check_job, "start_child", self._start)

    def _start(
        self, words: list[str], folder: Path, environment: Mapping[str, str]
    ) -> subprocess.Popen[str]:
        self.words = words
        output = Path(words[words.index("--output-dir") + 1])
        output.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            [shutil.which("sh") or "sh", "-c", self.shell],
            cwd=output,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ask(self, left_s: float = 1e6, base_sha: str = "") -> str:
        settings = TrainSettings.read(
            {
                "CANARY_CONFIG": "canary.yaml",
                "CANARY_CHECK": "true",
                "CANARY_RECORDS": str(self.records),
                "CANARY_BASE_SHA": base_sha,
            }
        )
        assert settings.check
        canary, base = Canary("canary.yaml"), None
        if base_sha:
            base = base_of(git_reader(self.checkout, base_sha), ".", canary)
        given, say = ["repeats=2"], lambda line: None
        return ask_relations(settings, self.place, canary, base, given, "00", left_s, say)

    def settings(self) -> list[str]:
        return [
            word
            for before, word in zip(self.words, self.words[1:], strict=False)
            if before == "--set"
        ]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(tmp_path, monkeypatch)


def test_the_answer_goes_into_the_records_whatever_it_says(job: Job) -> None:
    job.shell = "echo Broken: order.; echo '{}' > check.json; exit 1"
    assert job.ask() == ""
    assert (job.records / "00" / "check.json").read_text() == "{}\n"
    assert job.settings() == ["repeats=2"]


def test_the_base_branch_says_what_is_asked(job: Job) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        done = subprocess.run(
            ["git", *who, *words], cwd=job.checkout, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "base")
    base = git("rev-parse", "HEAD")
    (job.checkout / "canary.yaml").write_text(CONFIG.replace("workers", "padding"))
    job.shell = "echo '{}' > check.json"
    assert job.ask(base_sha=base) == ""
    (held,) = [item for item in job.settings() if item.startswith("check=")]
    loaded = load_config(job.checkout / "canary.yaml", [held])
    assert loaded.config.check.skip == ("workers",)
    assert held == held_check(loaded)


@pytest.mark.parametrize(
    ("shell", "said"),
    [
        ("exit 0", "canary check left no answer: No such file or directory"),
        ("echo 'canary: it broke (mend it)' >&2; exit 4", "it broke (mend it)"),
        ("echo 'canary: no relation is left' >&2; exit 2", "no relation is left"),
        ("mkfifo check.json", "not a regular file"),
        ("head -c 2000000 /dev/zero > check.json", "larger than 1 MiB"),
    ],
)
def test_without_an_answer_the_reason_is_said(job: Job, shell: str, said: str) -> None:
    job.shell = shell
    assert said in job.ask()
    assert not (job.records / "00" / "check.json").exists()


def test_a_check_ends_within_the_time_of_the_whole(job: Job) -> None:
    assert "no minutes were left" in job.ask(left_s=0.0)
    job.shell = "exec sleep 60"
    assert "did not end in the minutes that were left" in job.ask(left_s=0.5)
    assert [item for item in job.settings() if item.startswith("timeout=")] == ["timeout=0.5"]
