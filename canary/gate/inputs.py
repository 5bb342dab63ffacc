"""Read the action's inputs from environment variables."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, get_args

from canary.baseline.branch import BRANCH, Remote
from canary.compare.verdict import MIN_HISTORY
from canary.config.token import Token, take_token
from canary.errors import UsageError
from canary.gate.manifest import Mode
from canary.github.event import ACCEPT_LABEL

Found = TypeVar("Found")

NAME = "rlhf-canary"
ARTIFACT = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,99}")
DEFAULT_API = "https://api.github.com"
DEFAULT_SERVER = "https://github.com"
YES = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False}


def lines(text: str) -> tuple[str, ...]:
    """Return an input's lines without blank ones."""
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def flag(environ: Mapping[str, str], name: str) -> bool:
    """Read a boolean; UsageError for another value."""
    value = environ.get(name, "").strip().lower()
    if value not in YES:
        raise UsageError(f"input {shown(name)} is {value!r}", "write true or false")
    return YES[value]


def number(environ: Mapping[str, str], name: str, default: float) -> float:
    """Read a positive number; UsageError for another value."""
    text = environ.get(name, "").strip()
    try:
        value = float(text) if text else default
    except ValueError:
        value = -1.0
    if not 0 < value < 1e6:
        raise UsageError(
            f"input {shown(name)} is {text!r}", "write a number above 0 and below 1,000,000"
        )
    return value


def shown(name: str) -> str:
    """Return the input's name for a variable's name."""
    return name.removeprefix("CANARY_").lower().replace("_", "-")


def mode_of(environ: Mapping[str, str]) -> Mode:
    """Read what runs are compared with; UsageError unless it is `baseline` or `ab`."""
    compare = environ.get("CANARY_COMPARE", "").strip() or "baseline"
    if compare not in get_args(Mode):
        raise UsageError(f"input compare is {compare!r}", "write baseline or ab")
    return "ab" if compare == "ab" else "baseline"


def whole_number(environ: Mapping[str, str], name: str, default: int) -> int:
    """Read a variable that GitHub sets to a whole number; UsageError for another value."""
    text = environ.get(name) or str(default)
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{name} is {text!r}, which is not a number", "GitHub Actions sets it")
    return int(text)


def configs_of(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Read the paths of the configs; UsageError without one, or if one is listed twice."""
    configs = lines(environ.get("CANARY_CONFIG", ""))
    if not configs:
        raise UsageError("input config is empty", "write one canary config per line")
    if len(set(configs)) < len(configs):
        raise UsageError("input config lists a file twice", "list it once")
    return configs


def nightly_of(config: str) -> str:
    """Return the path of a config's longer canary: `canary-nightly.yaml` for `canary.yaml`."""
    stem, dot, ending = config.rpartition(".")
    return f"{stem}-nightly.{ending}" if dot else f"{config}-nightly"


def with_nightly(configs: Sequence[str], there: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the configs of the nightly run: the longer canary of the first, if its file is there,
    and every one of them."""
    longer = nightly_of(configs[0])
    return (longer, *configs) if longer not in configs and there(longer) else tuple(configs)


def name_of(environ: Mapping[str, str]) -> str:
    """Read the name of the status, which the artifacts have too; UsageError for a name that no
    artifact can have."""
    name = environ.get("CANARY_NAME", "").strip() or NAME
    if not ARTIFACT.fullmatch(name):
        raise UsageError(
            f"input name is {name!r}",
            "use letters, digits, spaces and .-_ (at most 100)",
        )
    return name


def branch_of(environ: Mapping[str, str]) -> str:
    """Read the name of the baseline branch; UsageError for an invalid name."""
    name = environ.get("CANARY_BASELINE_BRANCH", "").strip() or BRANCH
    return Remote(DEFAULT_SERVER, name).branch


class _Inputs:
    """Reads inputs one by one; keeps the first error, so that the commit's answer can show it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.refused: UsageError | None = None
        self._environ = environ

    def take(self, read: Callable[..., Found], instead: Found, *values: object) -> Found:
        """Return what `read` returns; `instead` if it raises a UsageError."""
        try:
            return read(self._environ, *values)
        except UsageError as problem:
            self.refused = self.refused or problem
            return instead


@dataclass(frozen=True)
class TrainSettings:
    """Inputs of the training job, which never has a token."""

    configs: tuple[str, ...]
    command: str
    setup: str
    folder: str
    """Working directory, from the root of the checkout."""
    compare: Mode
    timeout_minutes: float
    base_sha: str
    task: str
    """What a dispatch asks for, or the name of the event."""
    wants_gpu: bool
    checkout: Path
    records: Path
    scratch: Path

    @property
    def nightly(self) -> bool:
        """Whether the longer canary runs too."""
        return self.task in ("schedule", "nightly")

    @property
    def runs(self) -> int:
        """Runs of each config: as many as a new baseline needs, or one."""
        return MIN_HISTORY if self.task == "bootstrap" else 1

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> TrainSettings:
        """Read them from the environment.

        Raises:
            UsageError: an input is invalid.
        """
        return cls(
            configs=configs_of(environ),
            command=environ.get("CANARY_COMMAND", "").strip(),
            setup=environ.get("CANARY_SETUP", "").strip(),
            folder=environ.get("CANARY_WORKING_DIRECTORY", "").strip() or ".",
            compare=mode_of(environ),
            timeout_minutes=number(environ, "CANARY_TIMEOUT_MINUTES", 60.0),
            base_sha=environ.get("CANARY_BASE_SHA", "").strip(),
            task=environ.get("CANARY_TASK", "").strip(),
            wants_gpu=(environ.get("CANARY_GPUS", "").strip() or "all") != "none",
            checkout=Path(environ.get("CANARY_CHECKOUT") or "/workspace"),
            records=Path(environ.get("CANARY_RECORDS") or "/records"),
            scratch=Path(environ.get("CANARY_SCRATCH") or "/scratch"),
        )


@dataclass(frozen=True)
class ReportSettings:
    """Inputs of the reporting job."""

    configs: tuple[str, ...]
    folder: str
    compare: Mode
    strict: bool
    comment: bool
    status: bool
    name: str
    """Name of the status, and the beginning of the artifacts' names."""
    author: str
    jobs: int
    label: str
    template: str
    baseline_branch: str
    keep: int
    records: Path
    report: Path
    token: Token
    api_url: str
    server_url: str
    repository: str
    run_id: int
    attempt: int
    event: str
    event_path: Path
    sha: str
    ref: str
    actor: str
    refused: UsageError | None = None
    """The first invalid input. It is not raised here, because the commit needs an answer."""

    @classmethod
    def read(cls, environ: MutableMapping[str, str]) -> ReportSettings:
        """Read them from the environment; first take the token out of it.

        Raises:
            UsageError: this is not a job of GitHub Actions, so there is no commit to answer on.
        """
        token = take_token(environ)
        for name in ("GITHUB_EVENT_NAME", "GITHUB_EVENT_PATH", "GITHUB_REPOSITORY"):
            if not environ.get(name):
                raise UsageError(f"{name} is not set", "run this verb in a job of GitHub Actions")
        api = environ.get("GITHUB_API_URL") or DEFAULT_API
        if not api.startswith(("http://", "https://")):
            raise UsageError(f"GITHUB_API_URL is {api!r}, which is not an http address")
        inputs = _Inputs(environ)
        return cls(
            configs=inputs.take(configs_of, ()),
            folder=environ.get("CANARY_WORKING_DIRECTORY", "").strip() or ".",
            compare=inputs.take(mode_of, "baseline"),
            strict=inputs.take(flag, False, "CANARY_STRICT"),
            comment=inputs.take(flag, True, "CANARY_COMMENT"),
            status=inputs.take(flag, True, "CANARY_STATUS"),
            name=inputs.take(name_of, NAME),
            author=environ.get("CANARY_COMMENT_AUTHOR", "").strip(),
            jobs=inputs.take(whole_number, 1, "CANARY_JOBS", 1),
            label=environ.get("CANARY_ACCEPT_LABEL", "").strip() or ACCEPT_LABEL,
            template=environ.get("CANARY_COMMENT_TEMPLATE", "").strip(),
            baseline_branch=inputs.take(branch_of, BRANCH),
            keep=int(inputs.take(number, 50.0, "CANARY_KEEP", 50.0)),
            records=Path(environ.get("CANARY_RECORDS") or "canary-records"),
            report=Path(environ.get("CANARY_REPORT") or "canary-report"),
            token=token,
            api_url=api,
            server_url=environ.get("GITHUB_SERVER_URL") or DEFAULT_SERVER,
            repository=environ["GITHUB_REPOSITORY"],
            run_id=inputs.take(whole_number, 0, "GITHUB_RUN_ID", 0),
            attempt=inputs.take(whole_number, 1, "GITHUB_RUN_ATTEMPT", 1),
            event=environ["GITHUB_EVENT_NAME"],
            event_path=Path(environ["GITHUB_EVENT_PATH"]),
            sha=environ.get("GITHUB_SHA", ""),
            ref=environ.get("GITHUB_REF", ""),
            actor=environ.get("GITHUB_ACTOR", ""),
            refused=inputs.refused,
        )

    @property
    def run_url(self) -> str:
        """Address of this workflow run; empty outside GitHub Actions."""
        if not self.run_id:
            return ""
        return (
            f"{self.server_url}/{self.repository}/actions/runs/{self.run_id}"
            f"/attempts/{self.attempt}"
        )

    @property
    def artifact(self) -> str:
        """Name of the artifact with the records."""
        return f"{self.name}-records"

    @property
    def remote_url(self) -> str:
        """Address of the repository for git."""
        return f"{self.server_url}/{self.repository}.git"
