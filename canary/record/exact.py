"""The types of `exact`, the part of a record that has no noise, as the probe writes it and the
comparison reads it. Mappings, so that the training process needs no pydantic for them.

A key that an older version did not write, or that a training does not have, is absent. A key that
this version does not know is kept, and not looked at.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from typing_extensions import TypedDict

Series: TypeAlias = list[float | None]
"""A value for each step, or for each micro-batch of one."""


class Part(TypedDict, total=False):
    """A part of the record of which keys of a newer version are kept, here and in what is below."""

    __pydantic_config__ = {"extra": "allow"}  # type: ignore[misc]  # noqa: RUF012


class SpecialToken(TypedDict, total=False):
    """A token and its id."""

    token: str
    id: int | None


class Tokenizer(TypedDict, total=False):
    """Hashes of a tokenizer's parts; None of a part that it does not have."""

    vocab_sha256: str | None
    chat_template_sha256: str | None
    pipeline_sha256: str | None
    """Of what stands before and after the vocabulary: normalizer, splitting, tokens put around."""
    special_tokens: dict[str, SpecialToken]


class Data(TypedDict, total=False):
    """What the training is given."""

    rows: int
    dataset_sha256: str
    tokenizer: Tokenizer


TokenCount = Literal[
    "label_tokens", "eos_labels", "bos_tokens", "input_tokens", "sequences", "pad_tokens"
]
"""Counts of a micro-batch that add up over a step."""


class Micro(TypedDict, total=False):
    """One micro-batch."""

    rank: int
    """Of several ranks: whose it is."""
    sha256: str
    """Of its integer tensors."""
    shapes: dict[str, list[int]]
    rows: dict[str, list[str]]
    """A short hash of each row's ids without padding, by the name of the ids."""
    texts: dict[str, list[str]]
    """The same of each row's text."""
    input_tokens: int
    """Positions that are not padding."""
    label_tokens: int
    """Positions that the loss is taken on."""
    completion_tokens: int
    sequences: int
    eos_labels: int
    eos_inputs: int
    bos_tokens: int
    bos_most_in_a_sequence: int
    pad_tokens: int
    pad_ids: int
    unpacked: list[str]
    """Names of the tensors that stood in lists."""
    advantages: Series
    not_sampled: int
    """Trained completions that were never sampled."""


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
    """A name, or one for each part of a model that has several."""
    reference_sha256: str
    policy_sha256: str
    rounded_to: dict[str, str]
    """The narrower dtype that float32 weights were once stored in, of `policy` and `reference`."""


class Signal(TypedDict, total=False):
    """One of a rollout's tensors, a value a step."""

    count: list[int]
    mean: list[float]
    rms: list[float]
    """Root mean square."""
    placed: list[float]
    """Mean weighted by place, which tells values that have changed places."""


class Rollout(TypedDict, total=False):
    """What online RL made of its completions, a value a step."""

    tokens: list[int]
    signals: dict[str, Signal]


class FirstLoss(TypedDict, total=False):
    """The raw loss of step 1."""

    loss: float | None
    micro_losses: Series
    updates: Series
    """Of each update, where a step has several."""


class FirstGradient(TypedDict, total=False):
    """Its gradient's norms before clipping."""

    total: float
    groups: dict[str, float]
    tensors_without_gradient: list[str]


class FirstUpdate(TypedDict, total=False):
    """The first change of the parameters."""

    delta_norm: float
    tensors_changed: int
    tensors_unchanged: list[str]
    after_sha256: str


class Clipping(TypedDict, total=False):
    """Gradient norms of each step, before clipping and as the optimizer got them."""

    before: Series
    applied: Series


class Trajectory(TypedDict, total=False):
    """Every step of the probe."""

    losses: Series
    grad_norms: Series
    learning_rates: Series
    rl: dict[str, Series]
    """Metrics of the trainer, by name."""


class Work(TypedDict, total=False):
    """What one step does."""

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


class LiveMemory(TypedDict, total=False):
    """Tensors alive after each step."""

    live_tensors: list[int]
    live_bytes: list[int]
    start_bytes: int | None
    """Alive before the training."""
    peak_bytes: int | None


class Frozen(TypedDict, total=False):
    """What was declared still, after the training."""

    tensors: int
    changed: list[str]
    reference_changed: bool | None
    final_parameters_sha256: str


class Calls(Part, total=False):
    """Calls and files of a launch. Cache hits are maps that were asked for and not executed."""

    tokenizer_calls: int
    dataset_maps: int
    dataset_maps_executed: int
    dataset_cache_hits: int
    files_opened: int
    files_distinct: int
    bytes_written: int | None


class DrawnStep(TypedDict, total=False):
    """How what `generate` draws in a step lies to the policy (see
    `canary.training.trainers.on_policy`)."""

    step: int
    tokens: int
    gap: float | None
    gap_mean: float | None
    rank: float | None
    ranked: int


class Generation(TypedDict, total=False):
    """Of a launch that keeps or is given completions."""

    steps: list[DrawnStep]


class OwnCode(TypedDict, total=False):
    """A function of the user's own."""

    name: str
    file: str
    line: int
    sha256: str


class Evidence(TypedDict, total=False):
    """What a diagnosis may point to; not compared by itself."""

    settings: dict[str, object]
    """Settings as they stand when the training begins."""
    code: dict[str, OwnCode]


class RankParameters(TypedDict, total=False):
    """Of several ranks, by rank: hashes of the parameters that each began and ended with."""

    initial_parameters_sha256: dict[str, str | None]
    final_parameters_sha256: dict[str, str | None]
    sharded: bool
    """Each rank holds a part of them."""


class Exact(Part, total=False):
    """Everything the probe saw, in the order of the comparison's stages as far as they have one."""

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
    generation: Generation
    evidence: Evidence
    ranks: RankParameters
