"""One advisory, and the files that ship with the program."""

from __future__ import annotations

import re
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import yaml
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from canary.advisories.condition import Test, wrong_test

FAULTS = Path(__file__).parent / "faults"
OFFICIAL = (
    "https://github.com/",
    "https://huggingface.co/docs/",
    "https://docs.pytorch.org/",
    "https://pytorch.org/",
    "https://docs.vllm.ai/",
)
"""Where a source may stand."""
PackageName = Literal[
    "torch",
    "transformers",
    "trl",
    "peft",
    "accelerate",
    "datasets",
    "tokenizers",
    "bitsandbytes",
    "deepspeed",
    "vllm",
]


def _range(text: str) -> str:
    try:
        if not len(SpecifierSet(text)):
            raise ValueError("an empty range")
    except InvalidSpecifier as error:
        raise ValueError(f"{text!r} is no PEP 440 range") from error
    return text


def _link(text: str) -> str:
    if not text.startswith(OFFICIAL) or re.search(r"\s", text):
        raise ValueError(f"{text!r} is no link to GitHub or to official pages")
    return text


Link = Annotated[str, AfterValidator(_link)]
Sentence = Annotated[str, Field(min_length=10, max_length=400)]


class Advisory(BaseModel):
    """A known fault of a package."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)+$", max_length=60)]
    package: PackageName
    versions: Annotated[str, AfterValidator(_range)]
    """From where the fault came in to where it was fixed, as PEP 440 writes it."""
    condition: dict[str, Test] = Field(default_factory=dict)
    """Tests on what a record tells (`condition`); all must hold."""
    when: Annotated[str, Field(min_length=3, max_length=120)] | None = None
    """A further condition that no record tells, as the end of "if ..."."""
    wrong: Sentence
    """What goes wrong, in one or two sentences."""
    remedy: Sentence
    """What to do."""
    issue: Link | None
    """Where the fault is described."""
    fix: Link | None
    """The pull request or release that ended it; null while it is open."""
    relation: str | None
    """The relation of `canary check` that shows it."""
    read: date
    """The day on which the sources were read."""

    @model_validator(mode="after")
    def _checked(self) -> Advisory:
        for key, test in self.condition.items():
            problem = wrong_test(key, test)
            if problem:
                raise ValueError(f"condition {key}: {problem}")
        if self.issue is None and self.fix is None:
            raise ValueError("an advisory needs a source")
        if not self.id.startswith(f"{self.package}-"):
            raise ValueError(f"the id of an advisory begins with {self.package}-")
        return self

    @property
    def link(self) -> str:
        """The first source."""
        return self.issue or self.fix or ""


def read_advisory(path: Path) -> Advisory:
    """Return the advisory of a file.

    Raises:
        ValueError: the file is no advisory.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    values = yaml.load(path.read_text(encoding="utf-8"), loader)
    found = Advisory.model_validate(values)
    if found.id != path.stem:
        raise ValueError(f"{path.name} holds {found.id}")
    return found


@cache
def advisories() -> tuple[Advisory, ...]:
    """Return every advisory that ships, by package and id."""
    found = [read_advisory(path) for path in sorted(FAULTS.glob("*.yaml"))]
    return tuple(sorted(found, key=lambda one: (one.package, one.id)))
