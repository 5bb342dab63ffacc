"""A whole gate for tests: a GitHub, a git remote with real commits, a runner's folders."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from canary.baseline.branch import BRANCH, Remote, pull
from canary.baseline.history import Context, save
from canary.config.token import Token
from canary.gate.gathering import World
from canary.gate.inputs import ReportSettings
from canary.gate.records import Manifest, Part, write_manifest
from canary.gate.report_job import answer, plan
from canary.github.client import connect
from canary.github.workflow import Job
from canary.record import jsonio
from canary.record.types import RunRecord
from tests.contract.git_server import git
from tests.github.server import GitHub
from tests.github.state import Comment, Pull, Repository
from tests.unit.comparing import altered, example, record

NAME = "org/repo"
FORK = "stranger/repo"
NOW = "2026-01-01T00:00:00+00:00"
CONFIG = "canary.yaml"
SAME_KEYS = ("training_type", "name", "max_steps", "look_steps", "metrics_warmup_steps")
BASE_CONFIG = yaml.safe_dump({key: example().config[key] for key in SAME_KEYS})


@dataclass(frozen=True)
class Bare:
    """A bare repository whose commits are written as files: a process of git would cost more."""

    folder: Path

    def make(self) -> None:
        (self.folder / "objects").mkdir(parents=True)
        (self.folder / "refs" / "heads").mkdir(parents=True)
        (self.folder / "HEAD").write_text("ref: refs/heads/main\n")
        (self.folder / "config").write_text(
            "[core]\nrepositoryformatversion = 0\nbare = true\n"
            "[uploadpack]\nallowAnySHA1InWant = true\nallowFilter = true\n"
        )

    def commit(self, branch: str, files: Mapping[str, bytes], parent: str | None, at: int) -> str:
        """A commit of these files alone, as the branch's tip."""
        who = f"t <t@example.org> {at} +0000"
        lines = [
            f"tree {self._tree(files)}",
            *([f"parent {parent}"] if parent else []),
            f"author {who}\ncommitter {who}\n\nchange {at}",
        ]
        sha = self._object("commit", "\n".join(lines).encode())
        tip = self.folder / "refs" / "heads" / branch
        tip.parent.mkdir(parents=True, exist_ok=True)
        tip.write_text(f"{sha}\n")
        return sha

    def _tree(self, files: Mapping[str, bytes]) -> str:
        folders: dict[str, dict[str, bytes]] = {}
        entries = []
        for path, content in files.items():
            first, _, rest = path.partition("/")
            if rest:
                folders.setdefault(first, {})[rest] = content
            else:
                entries.append((first, "100644", self._object("blob", content)))
        # Git sorts a folder as if its name ended in a slash.
        entries += [(f"{name}/", "40000", self._tree(held)) for name, held in folders.items()]
        parts = [
            f"{mode} {name.rstrip('/')}".encode() + b"\0" + bytes.fromhex(sha)
            for name, mode, sha in sorted(entries)
        ]
        return self._object("tree", b"".join(parts))

    def _object(self, kind: str, content: bytes) -> str:
        stored = f"{kind} {len(content)}".encode() + b"\0" + content
        sha = hashlib.sha1(stored).hexdigest()
        path = self.folder / "objects" / sha[:2] / sha[2:]
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(zlib.compress(stored, 1))
        return sha


@dataclass(frozen=True)
class Said:
    """What one run of the report half left."""

    code: int
    log: str
    outputs: dict[str, str]
    summary: str


@dataclass
class Gatehouse:
    """One repository behind a gate."""

    root: Path
    github: GitHub
    runs: int = 100
    ghes: bool = False
    hub_repository: Repository = field(init=False)
    spoil: Callable[[Path], None] | None = None
    """What is done to the records before they are reported."""

    def __post_init__(self) -> None:
        self.bare = self.root / "origin.git"
        Bare(self.bare).make()
        self.heads: dict[str, str] = {}
        self.files: dict[str, dict[str, str]] = {}
        self.hub_repository = self.github.state.add_repository(NAME)
        self.hub_repository.permissions |= {"ada": "write", "mallory": "read"}

    # Commits, on both sides alike.

    def commit(self, branch: str = "main", files: Mapping[str, str] | None = None) -> str:
        """A commit on a branch, made at the default branch where it is new."""
        self.runs += 1
        parent = self.heads.get(branch) or self.heads.get("main")
        changed = {CONFIG: BASE_CONFIG, "change": str(self.runs), **(files or {})}
        content = self.files.get(branch, self.files.get("main", {})) | changed
        stored = {path: text.encode() for path, text in content.items()}
        sha = Bare(self.bare).commit(branch, stored, parent, self.runs)
        self.heads[branch], self.files[branch] = sha, content
        return self.hub_repository.add_commit(
            content, sha=sha, branch=branch if branch == "main" else ""
        )

    def pull(self, **values: Any) -> Pull:
        """A pull request with a commit of its own."""
        base = self.heads["main"]
        return self.hub_repository.add_pull(self.commit("faster"), base_sha=base, **values)

    def fork(self, content: bytes | None, conclusion: str = "success", **values: Any) -> Pull:
        """A pull request from a fork, whose run number 50 has ended and left this artifact."""
        pull = self.pull(head_repository=FORK, **values)
        run = self.hub_repository.add_run(
            pull.head_sha, id=50, head_repository=FORK, conclusion=conclusion
        )
        if content is not None:
            self.hub_repository.add_artifact(run, "rlhf-canary-records", content)
        return pull

    def push_to(self, pull: Pull) -> str:
        """Another commit on it."""
        return self.hub_repository.push(pull, self.commit("faster"))

    # Runs.

    def report(
        self,
        event: str,
        payload: Mapping[str, Any],
        runs: Sequence[RunRecord] | None,
        *,
        by: Callable[[ReportSettings, World], int] = answer,
        of: str = CONFIG,
        head: str = "",
        **inputs: str,
    ) -> Said:
        """Runs the report half as the action would; `runs` None: the other half left nothing."""
        self.runs += 1
        number = self.runs
        folder = self.root / f"run-{number}-{by.__name__}"
        folder.mkdir()
        (folder / "event.json").write_text(json.dumps(payload))
        if runs is not None:
            records_folder(folder / "records", runs, of)
        if self.spoil is not None:
            self.spoil(folder)
        environ = self._environ(folder, event, number, inputs)
        if head:
            environ |= {"GITHUB_SHA": head, "GITHUB_REF": payload["ref"]}
        settings = ReportSettings.read(environ)
        stream = io.StringIO()
        job = Job(stream, folder / "output", folder / "summary")
        hub = connect(
            settings.token,
            settings.api_url,
            settings.repository,
            sleep=lambda seconds: self.github.clock.sleep(seconds),
            clock=self.github.clock.time,
            seconds_between_writes=0.0,
            backoff_s=0.0,
        )
        remote = Remote(f"file://{self.bare}", settings.baseline_branch, settings.token)
        world = World(hub, remote, job, lambda: datetime(2026, 1, 1, tzinfo=UTC))
        code = by(settings, world)
        text = {
            name: (folder / name).read_text() if (folder / name).exists() else ""
            for name in ("output", "summary")
        }
        everything = stream.getvalue() + text["output"] + text["summary"] + repr((settings, world))
        assert self.github.token not in everything
        return Said(code, stream.getvalue(), outputs(text["output"]), text["summary"])

    def _environ(
        self, folder: Path, event: str, number: int, inputs: Mapping[str, str]
    ) -> dict[str, str]:
        given = {f"CANARY_{name.upper()}": value for name, value in inputs.items()}
        head = self.heads["main"]
        return {
            "GITHUB_EVENT_NAME": event,
            "GITHUB_EVENT_PATH": str(folder / "event.json"),
            "GITHUB_REPOSITORY": NAME,
            "GITHUB_API_URL": self.github.ghes_url if self.ghes else self.github.url,
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_RUN_ID": str(number),
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_SHA": head,
            "GITHUB_REF": "refs/heads/main",
            "GITHUB_ACTOR": "ada",
            "CANARY_TOKEN": self.github.token,
            "CANARY_CONFIG": CONFIG,
            "CANARY_COMMENT": "always",
            "CANARY_STRICT": "false",
            "CANARY_RECORDS": str(folder / "records"),
            "CANARY_REPORT": str(folder / "report"),
        } | given

    def pushes(self, count: int = 3) -> list[Said]:
        """Pushes to the default branch, each with a run, and what was answered."""
        return [self.push_main(self.run()) for _ in range(count)]

    def baseline(self, count: int = 3) -> None:
        """What so many pushes leave on the baseline branch."""
        self.store(*(self.run() for _ in range(count)))

    def store(self, *runs: RunRecord, **commit: Any) -> None:
        """What pushes with these runs leave on the baseline branch, in one commit."""
        entries = [(self.commit(**commit), run) for run in runs]
        with TemporaryDirectory() as name:
            folder = Path(name)
            if (self.bare / "refs" / "heads" / BRANCH).exists():
                pull(Remote(f"file://{self.bare}"), folder)
            for sha, run in entries:
                context = Context(commit=sha, ref="refs/heads/main", verdict="pass", stored=NOW)
                save(folder, run, context=context)
            paths = sorted(one for one in folder.rglob("*") if one.is_file())
            files = {str(one.relative_to(folder)): one.read_bytes() for one in paths}
        Bare(self.bare).commit(BRANCH, files, None, self.runs)

    def push_main(self, *runs: RunRecord, sha: str = "", **inputs: Any) -> Said:
        """A push to the default branch and its report."""
        sha = sha or self.commit()
        return self.report("push", push_event(sha), runs, **inputs)

    def dispatch(self, *runs: RunRecord, **inputs: str) -> Said:
        """A run that a person started on the default branch, and its report."""
        sha = self.commit()
        payload = {"repository": repository_payload(), "ref": "refs/heads/main", "inputs": inputs}
        return self.report("workflow_dispatch", payload, runs, head=sha)

    def plan(self, pull: Pull, action: str = "opened", label: str = "") -> Said:
        """What the plan says of a pull request's event."""
        payload = pull_event(pull, action, (label, "ada") if label else None)
        return self.report("pull_request", payload, None, by=plan)

    def judge(
        self, pull: Pull, *runs: RunRecord, action: str = "synchronize", **inputs: Any
    ) -> Said:
        """A pull request's report."""
        label = inputs.pop("label", None)
        payload = pull_event(pull, action, label)
        return self.report("pull_request", payload, runs or None, **inputs)

    def judge_raw(self, pull: Pull, run: RunRecord, path: tuple[str, str], value: Any) -> Said:
        """As `judge`, with one place of the record's JSON holding what the types do not allow."""

        def spoil(folder: Path) -> None:
            for file in folder.rglob("metrics.json"):
                document = json.loads(file.read_text())
                document[path[0]][path[1]] = value
                file.write_text(json.dumps(document))

        self.spoil = spoil
        try:
            return self.judge(pull, run)
        finally:
            self.spoil = None

    def queue(self, pull: Pull, run: RunRecord) -> tuple[str, Said]:
        """The commit of a merge queue, and its report."""
        name = f"gh-readonly-queue/main/pr-{pull.number}-{pull.base_sha}"
        sha = self.commit(name)
        group = {
            "head_sha": sha,
            "head_ref": f"refs/heads/{name}",
            "base_sha": pull.base_sha,
            "base_ref": "refs/heads/main",
        }
        payload = {"action": "checks_requested", "merge_group": group}
        payload["repository"] = repository_payload()
        return sha, self.report("merge_group", payload, [run])

    def changed(self, name: str = "") -> RunRecord:
        """A run whose config and first loss differ."""
        run = altered(self.run(), "config", "learning_rate", to=1e-3)
        run = altered(run, "exact", "first_loss", "loss", to=9.0)
        return run.model_copy(update={"run_id": name or f"{run.run_id}-changed"})

    def run(self, time: float = 0.1, **values: Any) -> RunRecord:
        """A run with this step time, later than those before it."""
        self.runs += 1
        return record(self.runs, time, **values)

    # What became of it.

    def comments(self, pull: Pull) -> list[Comment]:
        return self.hub_repository.comments_on(pull.number)

    def status(self, sha: str) -> tuple[str, str]:
        """State and description of the newest status of ours."""
        everyones = self.hub_repository.statuses_of(sha)
        found = [one for one in everyones if one.context == "rlhf-canary"]
        assert found, "no status"
        return found[0].state, found[0].description or ""

    def entries(self) -> list[str]:
        """File names of the stored runs, oldest first."""
        names = git(self.bare, "ls-tree", "-r", "--name-only", "canary-baselines").splitlines()
        return sorted(Path(name).name for name in names)


def outputs(text: str) -> dict[str, str]:
    """The outputs of a step, as the runner reads them."""
    found, lines = {}, text.splitlines()
    while lines:
        name, _, delimiter = lines.pop(0).partition("<<")
        value = []
        while (line := lines.pop(0)) != delimiter:
            value.append(line)
        found[name] = "\n".join(value)
    return found


def records_folder(root: Path, runs: Sequence[RunRecord], config: str = CONFIG) -> None:
    """What the run half leaves."""
    for run in runs:
        folder = root / "00-canary" / "current" / run.run_id
        folder.mkdir(parents=True)
        (folder / "metrics.json").write_text(jsonio.dumps(run.model_dump()))
    write_manifest(root, Manifest(parts=[Part(config=config, folder="00-canary")]))


def artifact(root: Path, runs: Sequence[RunRecord], **extra: bytes) -> bytes:
    """The same as a zip file, with further members."""
    records_folder(root, runs)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for path in sorted(root.rglob("*")):
            if path.is_file():
                packed.write(path, path.relative_to(root))
        for name, content in extra.items():
            packed.writestr(name, content)
    return buffer.getvalue()


def repository_payload() -> dict[str, Any]:
    return {"full_name": NAME, "default_branch": "main", "fork": False, "id": 1}


def push_event(sha: str) -> dict[str, Any]:
    return {
        "ref": "refs/heads/main",
        "before": "1" * 40,
        "after": sha,
        "deleted": False,
        "created": False,
        "forced": False,
        "repository": repository_payload(),
        "sender": {"login": "ada"},
    }


def pull_event(pull: Pull, action: str, label: tuple[str, str] | None) -> dict[str, Any]:
    name = pull.head_repository
    head = {"full_name": name, "fork": name != NAME, "id": 2, "default_branch": "main"}
    event: dict[str, Any] = {
        "action": action,
        "number": pull.number,
        "pull_request": {
            "number": pull.number,
            "state": pull.state,
            "draft": pull.draft,
            "user": {"login": pull.author},
            "merged": False,
            "head": {"sha": pull.head_sha, "ref": pull.head_branch, "repo": head},
            "base": {
                "sha": pull.base_sha,
                "ref": pull.base_branch,
                "repo": repository_payload(),
            },
        },
        "repository": repository_payload(),
        "sender": {"login": label[1] if label else "mona"},
    }
    if label:
        event["label"] = {"name": label[0]}
    return event


def workflow_run_event(
    sha: str, run_id: int, head: str, action: str = "completed", conclusion: str = "success"
) -> dict[str, Any]:
    return {
        "action": action,
        "repository": repository_payload(),
        "sender": {"login": "mona"},
        "workflow_run": {
            "id": run_id,
            "event": "pull_request",
            "status": "completed" if action == "completed" else "queued",
            "conclusion": conclusion if action == "completed" else None,
            "head_sha": sha,
            "head_branch": "faster",
            "head_repository": {"full_name": head, "fork": head != NAME, "id": 3},
            "repository": repository_payload(),
            "pull_requests": [],
            "run_attempt": 1,
        },
    }


def remote_of(house: Gatehouse, token: str = "") -> Remote:
    """The remote of a gatehouse's baseline."""
    return Remote(f"file://{house.bare}", "canary-baselines", Token(token))
