"""One case of the corpus: a training, whether it is healthy, and what names its fault."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
_FIRST_VALUES = (
    *("dpo_first_loss", "kto_first_loss", "starts_at_ratio_one", "first_ratio", "kl_sign"),
    *("group_advantages", "advantages_scaled", "rewards_add_up"),
)
_REFERENCE = ("reference", "reference_start", "dpo_first_loss", "kto_first_loss")
_PADDING = ("padding", "padding_side", "trained_padding", "hidden_text", "positions")
_SAMPLER = ("sampler_logprobs", "sampled_ids_trained", "first_ratio", "starts_at_ratio_one")
_TRAINED = ("optimizer_holds_trainable", "trainable_changed", "frozen_unchanged")

NAMED_BY: dict[str, tuple[str, ...]] = {
    "accumulation": ("accumulation", "clip_before_step"),
    "adapter_start": ("adapter_start",),
    "assistant_mask": ("assistant_mask",),
    "attention": (),
    "causality": ("causality",),
    "chat_template": ("chat_template", "at_most_one_bos", "bos_as_tokenized"),
    "checkpointing": (),
    "compile": (),
    "eos_labels": ("eos_labels", "labels_contain_eos"),
    "evaluation": ("stays_in_training_mode", "only_the_optimizer_writes"),
    "frozen": _TRAINED,
    "fused_optimizer": (),
    "identities": (*_FIRST_VALUES, *_REFERENCE),
    "merge": (),
    "neighbour": ("neighbour", "leftover", *_PADDING),
    "next_token": ("next_token",),
    "order": ("neighbour",),
    "packing": ("packing", "positions"),
    "padding": _PADDING,
    "padding_side": _PADDING,
    "prompt_labels": ("prompt_labels", "pair_labels"),
    "ranks": ("ranks_agree",),
    "reference_start": _REFERENCE,
    "replay": (),
    "resume": (),
    "reward_function": ("each_reward_varies", "reward_varies"),
    "sampler_logprobs": _SAMPLER,
    "sampler_weights": _SAMPLER,
    "schedule": ("schedule_once_per_update", "schedule_length", "learning_rate_positive"),
    "swap": (),
    "weight_decay": (),
    "workers": ("worker_draws", "stream_split"),
}
"""What the cases of the first two corpora named were relations, two ways to do the same work. By
them: the rules of the same subject. It was written before the rules' first run on the corpora; a
rule that came later joins its subject."""


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
    """What names the fault rightly, as `NAMED_BY` says. Empty where healthy, or with `wrong`."""
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
