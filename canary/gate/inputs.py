"""Read the action's inputs from environment variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from canary.baseline.branch import BRANCH, Remote
from canary.compare.verdict import MIN_HISTORY
from canary.config.token import Token, take_token
from canary.errors import UsageError
from canary.gate.records import Mode
from canary.github.event import ACCEPT_LABEL
from canary.github.publish import Comments
from canary.github.statuses import CONTEXT

DEFAULT_SERVER = "https://github.com"
UNKNOWN = "canary"
"""In place of the configs if the input cannot be used: the answer needs one."""


def _configs(text: object) -> tuple[str, ...]:
    found = tuple(line.strip() for line in str(text).splitlines() if line.strip())
    if len(set(found)) < len(found):
        raise ValueError("it lists a file twice")
    return found


def _branch(name: str) -> str:
    try:
        return Remote(DEFAULT_SERVER, name).branch
    except UsageError as problem:
        raise ValueError(str(problem)) from problem


Configs = Annotated[tuple[str, ...], BeforeValidator(_configs)]
Minutes = Annotated[float, Field(gt=0, lt=1_000_000)]
Artifact = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,99}$")]
"""The name of a status, which artifacts have too."""
Address = Annotated[str, StringConstraints(pattern=r"^https?://")]


def nightly_of(config: str) -> str:
    """Return the path of a config's longer canary: `canary-nightly.yaml` for `canary.yaml`."""
    stem, dot, ending = config.rpartition(".")
    return f"{stem}-nightly.{ending}" if dot else f"{config}-nightly"


def with_nightly(configs: Sequence[str], there: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the configs of the nightly run: the longer canary of the first, if its file is there,
    and every one of them."""
    longer = nightly_of(configs[0])
    return (longer, *configs) if longer not in configs and there(longer) else tuple(configs)


class Inputs(BaseModel):
    """Inputs of both jobs, by the names of their variables; an empty one is at its default."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    configs: Configs = Field(alias="CANARY_CONFIG")
    folder: str = Field(".", alias="CANARY_WORKING_DIRECTORY")
    """Working directory, from the root of the checkout."""
    compare: Mode = Field("baseline", alias="CANARY_COMPARE")

    @classmethod
    def read(cls, environ: MutableMapping[str, str]) -> Self:
        """Read them from the environment.

        Raises:
            UsageError: an input is invalid.
        """
        try:
            return cls.model_validate(_given(environ))
        except ValidationError as problem:
            raise _refused(problem) from problem


def _given(environ: Mapping[str, str]) -> dict[str, object]:
    return {name: text.strip() for name, text in environ.items() if text.strip()}


def _refused(problem: ValidationError) -> UsageError:
    """Return the error of the first invalid input."""
    first = problem.errors(include_url=False)[0]
    name = str(first["loc"][0])
    what = name
    if name.startswith("CANARY_"):
        what = f"input {name.removeprefix('CANARY_').lower().replace('_', '-')}"
    if first["type"] == "missing":
        return UsageError(f"{what} is empty", "run this verb in a job of the action")
    said = first["msg"].removeprefix("Value error, ")
    return UsageError(f"{what} is {first['input']!r}: {said}")


class TrainSettings(Inputs):
    """Inputs of the training job, which never has a token."""

    command: str = Field("", alias="CANARY_COMMAND")
    setup: str = Field("", alias="CANARY_SETUP")
    timeout_minutes: Minutes = Field(60.0, alias="CANARY_TIMEOUT_MINUTES")
    base_sha: str = Field("", alias="CANARY_BASE_SHA")
    task: str = Field("", alias="CANARY_TASK")
    """What a dispatch asks for, or the name of the event."""
    gpus: str = Field("all", alias="CANARY_GPUS")
    checkout: Path = Field(Path("/workspace"), alias="CANARY_CHECKOUT")
    records: Path = Field(Path("/records"), alias="CANARY_RECORDS")
    scratch: Path = Field(Path("/scratch"), alias="CANARY_SCRATCH")

    @property
    def nightly(self) -> bool:
        """Whether the longer canary runs too."""
        return self.task in ("schedule", "nightly")

    @property
    def runs(self) -> int:
        """Runs of each config: as many as a new baseline needs, or one."""
        return MIN_HISTORY if self.task == "bootstrap" else 1


class ReportSettings(Inputs):
    """Inputs of the reporting job."""

    comment: Comments = Field("always", alias="CANARY_COMMENT")
    status: bool = Field(True, alias="CANARY_STATUS")
    strict: bool = Field(False, alias="CANARY_STRICT")
    name: Artifact = Field(CONTEXT, alias="CANARY_NAME")
    label: str = Field(ACCEPT_LABEL, alias="CANARY_ACCEPT_LABEL")
    jobs: int = Field(1, ge=1, alias="CANARY_JOBS")
    """Legs of this job's matrix."""
    baseline_branch: Annotated[str, AfterValidator(_branch)] = Field(
        BRANCH, alias="CANARY_BASELINE_BRANCH"
    )
    records: Path = Field(Path("canary-records"), alias="CANARY_RECORDS")
    report: Path = Field(Path("canary-report"), alias="CANARY_REPORT")
    api_url: Address = Field("https://api.github.com", alias="GITHUB_API_URL")
    server_url: str = Field(DEFAULT_SERVER, alias="GITHUB_SERVER_URL")
    repository: str = Field(alias="GITHUB_REPOSITORY")
    run_id: int = Field(0, ge=0, alias="GITHUB_RUN_ID")
    attempt: int = Field(1, ge=1, alias="GITHUB_RUN_ATTEMPT")
    event: str = Field(alias="GITHUB_EVENT_NAME")
    event_path: Path = Field(alias="GITHUB_EVENT_PATH")
    sha: str = Field("", alias="GITHUB_SHA")
    ref: str = Field("", alias="GITHUB_REF")
    actor: str = Field("", alias="GITHUB_ACTOR")
    token: Token = Token("")
    refused: UsageError | None = None
    """The first invalid input. It is not raised here, because the commit needs an answer."""

    @classmethod
    def read(cls, environ: MutableMapping[str, str]) -> Self:
        """Read them from the environment; first take the token out of it.

        Raises:
            UsageError: this is not a job of GitHub Actions, so there is no commit to answer on.
        """
        given = _given(environ) | {"token": take_token(environ)}
        try:
            return cls.model_validate(given)
        except ValidationError as problem:
            invalid = {str(one["loc"][0]) for one in problem.errors()}
            given = {name: value for name, value in given.items() if name not in invalid}
            given.setdefault("CANARY_CONFIG", UNKNOWN)
            try:
                return cls.model_validate(given | {"refused": _refused(problem)})
            except ValidationError as unusable:
                raise _refused(unusable) from unusable

    @property
    def job(self) -> str:
        """The name, if it is not the usual one."""
        return "" if self.name == CONTEXT else self.name

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
    def remote_url(self) -> str:
        """Address of the repository for git."""
        return f"{self.server_url}/{self.repository}.git"
