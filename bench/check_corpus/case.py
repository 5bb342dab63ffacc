"""One case of the corpus: a training, whether it is healthy, and which relations name its fault."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
RELATIONS = frozenset(
    {
        "accumulation",
        "ranks",
        "checkpointing",
        "attention",
        "compile",
        "fused_optimizer",
        "workers",
        "padding",
        "padding_side",
        "order",
        "neighbour",
        "packing",
        "prompt_labels",
        "eos_labels",
        "causality",
        "next_token",
        "frozen",
        "assistant_mask",
        "chat_template",
        "adapter_start",
        "merge",
        "reference_start",
        "swap",
        "identities",
        "resume",
        "evaluation",
        "schedule",
        "weight_decay",
        "sampler_logprobs",
        "sampler_weights",
        "reward_function",
        "replay",
    }
)
"""The ids of all relations."""


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
    """Any of these, when broken, names the fault rightly. Empty where healthy, or with `wrong`."""
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
        if unknown := set(self.relations) - RELATIONS:
            raise ValueError(f"{self.name}: unknown relations {sorted(unknown)}")
        if (self.script is None) == (self.config is None):
            raise ValueError(f"{self.name}: set either script or config")

    @property
    def path(self) -> Path:
        """The script or the config, absolute."""
        return HERE / str(self.script or self.config)
