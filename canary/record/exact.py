"""The types of `exact`, the record's part without noise: the look writes it, comparisons read it.

They are mappings, so that the training process needs no pydantic. A key is absent if an older
version did not write it or the training does not have it. An unknown key is kept and ignored.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from typing_extensions import TypedDict

from canary.record.facts import Facts

Series: TypeAlias = list[float | None]
"""One value per step, or per micro-batch of a step."""

TORCH_LOOP = "torch loop"
"""Stands for the trainer's class in the record of a loop that the canary found by itself."""
MOST_ZERO = 48
"""Names of tensors with a gradient of 0 that are kept."""


class Part(TypedDict, total=False):
    """A part of the record that keeps unknown keys, in itself and in its nested parts."""

    __pydantic_config__ = {"extra": "allow"}  # type: ignore[misc]  # noqa: RUF012


class SpecialToken(TypedDict, total=False):
    """A token and its id."""

    token: str
    id: int | None


class Tokenizer(TypedDict, total=False):
    """Hashes of a tokenizer's parts; None for a part that it lacks."""

    vocab_sha256: str | None
    chat_template_sha256: str | None
    pipeline_sha256: str | None
    """Of normalizer, splitting and added tokens: the work before and after the vocabulary."""
    special_tokens: dict[str, SpecialToken]


class Data(TypedDict, total=False):
    """The training's data."""

    rows: int
    dataset_sha256: str
    tokenizer: Tokenizer


TokenCount = Literal[
    "label_tokens", "eos_labels", "bos_tokens", "input_tokens", "sequences", "pad_tokens"
]
"""Counts of a micro-batch that are summed over a step."""


class Micro(TypedDict, total=False):
    """One micro-batch."""

    rank: int
    """Only with several ranks."""
    sha256: str
    """Hash of its tensors."""
    shapes: dict[str, list[int]]
    rows: dict[str, list[str]]
    """A short hash of each row's ids without padding, by the ids' name."""
    texts: dict[str, list[str]]
    """The same for each row's text."""
    input_tokens: int
    """Positions that are not padding."""
    label_tokens: int
    """Positions that count in the loss."""
    completion_tokens: int
    sequences: int
    eos_labels: int
    eos_inputs: int
    bos_tokens: int
    bos_most_in_a_sequence: int
    rows_with_two_bos: int
    """Rows that begin so."""
    pad_tokens: int
    learned_rows: int
    """Rows that could have labels of tokens."""
    prompt_tokens: int
    """Tokens of prompts that stand beside a pair and begin its rows."""
    prompt_labels: int
    """Those that the labels of the pair hold."""
    rows_without_labels: int
    stop_labels: int
    """Labels at which the model stops to generate; missing if that is not known."""
    fed_sha256: str
    """Hash of the integer tensors that entered the model, if a `DataLoader` yielded the batch."""
    fed_floats_sha256: str
    """The same of the floats."""
    earlier_calls: int
    """Calls of the model before the last one of the same backward, in a loop without a
    `DataLoader`: the micro-batch is what entered the last one."""
    earlier_sha256: str
    """Hash of what entered them."""
    unseen: list[str]
    """What of the batch was not hashed, by name; `labels` if the loss was computed outside of the
    model, and only what entered the model was seen. Missing in records of older versions."""
    advantages: Series
    not_sampled: int
    """Completions that are trained on but were never sampled."""


class Model(TypedDict, total=False):
    """The model before its first update."""

    parameters_sha256: str
    parameters: int
    trainable_parameters: int
    trainable_tensors: int
    sharded: bool
    trainable_names_sha256: str
    trainable_groups: dict[str, int]
    dtypes: dict[str, int]
    model_type: str | None
    attention: object
    """A name, or one per part of a model with several."""
    reference_sha256: str
    policy_sha256: str
    rounded_to: dict[str, str]
    """For `policy` and `reference`: the narrower dtype that float32 weights were once stored in."""


class Signal(TypedDict, total=False):
    """One tensor of a rollout, with one value per step."""

    count: list[int]
    mean: list[float]
    rms: list[float]
    """Root mean square."""
    placed: list[float]
    """Mean weighted by position, which changes if values swap places."""


class Rollout(TypedDict, total=False):
    """Values that online RL computed from its completions, one per step."""

    tokens: list[int]
    signals: dict[str, Signal]


class FirstLoss(TypedDict, total=False):
    """The raw loss of step 1."""

    loss: float | None
    micro_losses: Series
    updates: Series
    """One per update, if a step has several."""


class FirstGradient(TypedDict, total=False):
    """Norms of the first gradient before clipping."""

    total: float
    groups: dict[str, float]
    tensors_without_gradient: list[str]
    tensors_with_zero_gradient: list[str]
    """The first `MOST_ZERO`, without whole groups of such."""


def group_of(name: str) -> str:
    """Return the module group of a parameter: its name without layer numbers and last part."""
    return re.sub(r"\.\d+(?=\.)", ".*", name).rsplit(".", 1)[0]


class FirstUpdate(TypedDict, total=False):
    """The first change of the parameters."""

    delta_norm: float
    tensors_changed: int
    tensors_unchanged: list[str]
    after_sha256: str


class Clipping(TypedDict, total=False):
    """Gradient norms of each step: before clipping, and as the optimizer got them."""

    before: Series
    applied: Series


class Trajectory(TypedDict, total=False):
    """Every step of the look."""

    losses: Series
    grad_norms: Series
    learning_rates: Series
    rl: dict[str, Series]
    """The trainer's metrics, by name."""


class Work(TypedDict, total=False):
    """The work of one step."""

    step: int
    operators: dict[str, int]
    operator_total: int
    flops: int
    forwards: int | None
    tokens_fed: int | None
    host_reads: int
    """Tensor values read by Python."""
    collectives: int
    recompiles: int
    outer_losses: list[list[list[int]]]
    """Losses over all pairs of rows and targets, by their two shapes."""
    losses_of_probabilities: list[str]
    """Losses that get what a softmax made, in place of logits or log-probabilities."""


class LiveMemory(TypedDict, total=False):
    """Tensors alive after each step."""

    live_tensors: list[int]
    live_bytes: list[int]
    start_bytes: int | None
    """Alive before the training."""
    peak_bytes: int | None


class Frozen(TypedDict, total=False):
    """The parameters that must not change, after the training."""

    tensors: int
    changed: list[str]
    reference_changed: bool | None
    final_parameters_sha256: str


class Calls(Part, total=False):
    """Calls and files of a launch. A cache hit is a requested map that was not executed."""

    tokenizer_calls: int
    dataset_maps: int
    dataset_maps_executed: int
    dataset_maps_unhashable: int
    """Of functions that datasets cannot hash: no cache helps, so each run does them again."""
    dataset_cache_hits: int
    files_opened: int
    bytes_written: int | None


class FileCode(TypedDict, total=False):
    """What ran of a file of the user's code until the look ended."""

    ran: dict[str, str]
    """Lines by phase, as `1-20,25`: the first phase of a step that ran them, otherwise `setup`."""
    functions: dict[str, tuple[int, int, str]]
    """First and last line and hash of each function, class and `<module>` that ran."""
    idle: dict[str, tuple[int, int, str]]
    """The same of those that did not run; missing without any, and from older versions."""


class Code(TypedDict, total=False):
    """The user's code that ran until the look ended."""

    noted: Literal["lines", "functions"]
    """`functions`: Python 3.11 tells no lines, nor does code that torch compiled. Functions that a
    step called ran as a whole there. All other code of imported modules counts as run in the
    set-up."""
    files: dict[str, FileCode]
    """By path in the git repository, otherwise in the working folder."""
    outside: int
    """Files of the user's code elsewhere, as in an editable checkout; missing if there are none."""


EVALUATION_MODE = "modules.evaluation_mode_from_step"
"""A setting: the first step whose update was made in evaluation mode; missing without one."""


class Evidence(TypedDict, total=False):
    """Facts for a diagnosis; they are not compared."""

    settings: dict[str, object]
    """Settings when the training begins."""
    own_loss: str | None
    """The method with which the user's code computes the loss."""


class RankParameters(TypedDict, total=False):
    """With several ranks: hashes of each rank's first and last parameters, by rank."""

    initial_parameters_sha256: dict[str, str | None]
    final_parameters_sha256: dict[str, str | None]
    sharded: bool
    """Each rank holds a part of them."""


RuleStatus = Literal["holds", "broken", "note", "not asked"]
"""`note`: it looks broken, but nothing shows for sure that it is no choice."""


class Asked(TypedDict, total=False):
    """What the model said when it was asked a second time about rows of the look."""

    status: RuleStatus
    words: str
    """One sentence without a full stop: both values, or why nothing was asked."""
    place: str
    """The first place where both sides part; empty without one."""
    doubt: str
    """Of a note: why it may be a choice."""


class Exact(Part, total=False):
    """Everything that the look saw, in the order of the comparison's stages if there is one."""

    steps: int
    data: Data
    batches: list[list[Micro]]
    """The micro-batches of each step."""
    model: Model
    rollout: Rollout
    first_loss: FirstLoss
    first_gradient: FirstGradient
    first_update: FirstUpdate
    clipping: Clipping
    trajectory: Trajectory
    work: Work
    memory: LiveMemory
    calls: Calls
    frozen: Frozen
    evidence: Evidence
    code: Code
    ranks: RankParameters
    facts: Facts
    asked: dict[str, Asked]
    """By question."""
