"""Pull requests on training scripts of other people: what each changes, what a reader would blame.

One YAML per script. `load` reads them. `make` builds a git repository of one: the shrunk script is
`main`, and each pull request is a branch.
"""

import shutil
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

HERE = Path(__file__).parent
IDENTITY = ("-c", "user.name=bench", "-c", "user.email=bench@example.com")
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+$")]
Source = Annotated[str, StringConstraints(pattern=r"^github:[\w.-]+/[\w.-]+@[0-9a-f]{40}$")]
Package = Annotated[str, StringConstraints(pattern=r"^[\w.-]+==[\w.]+$")]
# Not empty, not absolute, and no way out of the folder.
RelativePath = Annotated[str, StringConstraints(pattern=r"^(?!/)(?!.*(^|/)\.\.(/|$)).+$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, regex_engine="python-re")


class Kind(StrEnum):
    """Does the pull request change what is learned?"""

    FAULT = "fault"
    BENIGN = "benign"


class Cause(StrEnum):
    """What a reader could blame.

    `adapter` is what is trained; `rollout` is generation, rewards and the environment of RL.
    """

    DATA = "data"
    TOKENIZATION = "tokenization"
    DATALOADER = "dataloader"
    OBJECTIVE = "objective"
    OPTIMIZER = "optimizer"
    ADAPTER = "adapter"
    ROLLOUT = "rollout"
    NUMERICS = "numerics"
    KERNEL = "kernel"
    MEMORY = "memory"
    ENVIRONMENT = "environment"


class Edit(_Strict):
    """Replaces `find`, which occurs exactly once in `file`."""

    file: RelativePath
    find: Annotated[str, StringConstraints(min_length=1)]
    replace: str

    def apply(self, folder: Path) -> None:
        """Edits the file in `folder`; ValueError if `find` does not occur exactly once."""
        path = folder / self.file
        text = path.read_text(encoding="utf-8")
        if (found := text.count(self.find)) != 1:
            raise ValueError(f"{self.file} contains {found} times, not once: {self.find!r}")
        path.write_text(text.replace(self.find, self.replace), encoding="utf-8")


class Change(_Strict):
    """One pull request. A fault names its line as it is after the change (`deleted`: before)."""

    name: Name
    kind: Kind
    edits: Annotated[list[Edit], Field(min_length=1)]
    file: RelativePath | None = None
    line: str | None = None
    deleted: bool = False
    causes: list[Cause] = []
    why: str

    @model_validator(mode="after")
    def _names_its_line(self) -> Self:
        if self.kind is Kind.FAULT and not (self.file and self.line and self.causes):
            raise ValueError(f"the fault {self.name} needs file, line and causes")
        if self.kind is Kind.BENIGN and (self.line or self.causes):
            raise ValueError(f"the benign change {self.name} has no line and no causes")
        return self


class Script(_Strict):
    """A training script of a public repository, shrunk by `edits`, with the pull requests on it."""

    name: Name
    source: Source
    license: str
    files: Annotated[list[RelativePath], Field(min_length=1)]
    requires: list[Package] = []
    setup: str = ""
    edits: list[Edit]
    command: Annotated[list[str], Field(min_length=2)]
    steps: Annotated[int, Field(ge=30)]
    changes: list[Change]

    @property
    def repository(self) -> str:
        """owner/name"""
        return self.source.removeprefix("github:").split("@")[0]

    @property
    def commit(self) -> str:
        return self.source.split("@")[1]

    @model_validator(mode="after")
    def _names_are_branches(self) -> Self:
        names = ["main", *(change.name for change in self.changes)]
        if len(set(names)) < len(names):
            raise ValueError(f"two changes have one name, or one is named main: {names}")
        return self


def load(folder: Path = HERE) -> list[Script]:
    """Every script of the folder, by name; ValueError names a file that is not in the format."""
    scripts = []
    for path in sorted(folder.glob("*.yaml")):
        try:
            scripts.append(
                Script(name=path.stem, **yaml.safe_load(path.read_text(encoding="utf-8")))
            )
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from error
    return scripts


def make(script: Script, sources: Path, folder: Path, python: str = sys.executable) -> None:
    """Makes `folder` a git repository: the shrunk script is `main`, each change a branch.

    The files come from the folder `sources/owner+name/COMMIT`, or from a bare clone that is
    `sources/owner+name` or a folder in it.
    """
    folder.mkdir(parents=True)
    copied(script, sources, folder)
    if script.setup:
        subprocess.run([python, "-c", script.setup], cwd=folder, check=True)
    for edit in script.edits:
        edit.apply(folder)
    git(folder, "init", "-q", "-b", "main")
    committed(folder, "The script")
    for change in script.changes:
        git(folder, "switch", "-q", "-c", change.name, "main")
        for edit in change.edits:
            edit.apply(folder)
        committed(folder, change.name)
    git(folder, "switch", "-q", "main")


def copied(script: Script, sources: Path, folder: Path) -> None:
    """Copies the script's files, unchanged; FileNotFoundError if `sources` does not have them."""
    origin = sources / script.repository.replace("/", "+")
    plain = origin / script.commit
    heads = [head for head in (origin / "HEAD", *sorted(origin.glob("*/HEAD"))) if head.is_file()]
    if not plain.is_dir() and not heads:
        raise FileNotFoundError(f"{origin} has neither a folder {script.commit} nor a bare clone")
    for file in script.files:
        target = folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if plain.is_dir():
            shutil.copyfile(plain / file, target)
        else:
            target.write_bytes(git(heads[0].parent, "show", f"{script.commit}:{file}"))


def committed(folder: Path, message: str) -> None:
    git(folder, "add", "--all", "--force")
    git(folder, *IDENTITY, "commit", "-q", "-m", message)


def git(folder: Path, *arguments: str) -> bytes:
    """What git prints when it runs in `folder`."""
    return subprocess.run(
        ["git", *arguments], cwd=folder, check=True, stdout=subprocess.PIPE
    ).stdout
