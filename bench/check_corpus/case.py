"""One case of the corpus: a training, whether it is healthy, and what names its fault."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
@@MAP@@

@dataclass(frozen=True)
class Case:
    """A training to check, with the answer.

    `script` and `config` are paths below this folder; exactly one of them is set.
    """

    name: str
    healthy: bool
    what: str
    """The fault, or what looks odd and is right, in one sentence."""
    source: str
    """A link, or "mutation of LINK"."""
    relations: tuple[str, ...]
    """What names the fault rightly, in the words of `NAMED_BY`. Empty where healthy, or with `wrong`.
    """
    trainer: str
    """What trains: "loop", "accelerate", "transformers", "sft", "dpo", "grpo", ..."""
    script: str | None = None
    config: str | None = None
    wrong: str = ""
    """In place of `relations`: what an answer says that names the fault, for a person to judge."""

    def __post_init__(self) -> None:
        """Check that the case is complete."""
        if bool(self.relations) + bool(self.wrong) != (not self.healthy):
            raise ValueError(f"{self.name}: a fault has either relations or wrong, else neither")
        if unknown := set(self.relations) - set(NAMED_BY):
            raise ValueError(f"{self.name}: unknown names {sorted(unknown)}")
        if (self.script is None) == (self.config is None):
            raise ValueError(f"{self.name}: set either script or config")

    @property
    def rules(self) -> frozenset[str]:
        """Any of these rules, when broken, names the fault rightly."""
        return frozenset[str]().union(*(NAMED_BY[one] for one in self.relations))

    @property
    def path(self) -> Path:
        """The script or the config, absolute."""
        return HERE / str(self.script or self.config)
