"""The types of `exact.facts`: what the watchers of a look note for the rules."""

from __future__ import annotations

from typing import Required

from typing_extensions import TypedDict


class Rounding(TypedDict):
    """Updates of an optimizer like Adam in bfloat16 or float16, in samples of its tensors."""

    dtype: str
    tensors: int
    """Sampled tensors that got a gradient."""
    still: int
    """Those of which no update changed any sampled element."""
    still_names: list[str]
    asked: int
    """Sampled elements with a gradient, summed over all updates."""
    lost: int
    """Those of them that the update left equal."""


FollowedOptimizer = TypedDict(
    "FollowedOptimizer",
    {
        "class": str,
        # All tensors that it holds, and those that had a gradient in an update.
        "tensors": int,
        "with_gradient": int,
        "updates": Required[int],
        # Per update: backwards before it, and the learning rate of the first group.
        "backwards": list[int],
        "rates": list[float],
        # Whether updates compute gradients themselves, or are made inside of a backward.
        "closure": bool,
        # Updates whose gradients began as those of the update before, and those that began empty
        # or with other values.
        "left": int,
        "emptied": int,
        # Updates whose gradients were clipped before, or after and before the next backward; and
        # those of the latter in which the norm was above the limit.
        "clips_before": int,
        "clips_after": int,
        "clips_after_acted": int,
        # Clips that acted between two backwards of one update.
        "clips_between": int,
        # Updates before which parameters changed since the update before, and the first of these.
        "written_before": list[int],
        "written": str,
        "rounding": Rounding,
    },
    total=False,
)
"""One optimizer in the look. Values are compared in samples of its tensors."""

Schedule = TypedDict(
    "Schedule",
    {"class": str, "length": int, "begun_at": int, "steps": Required[list[int]]},
    total=False,
)
"""A scheduler of torch: its length if it is known, its place at its first step in the look, and its
steps after each update."""


class Holding(TypedDict, total=False):
    """What the optimizers hold of the model."""

    tensors: int
    trainable: int
    """Trainable tensors of the model."""
    trainable_held: int
    missing: int
    """Trainable tensors that got a gradient, did not change, and are in no optimizer."""
    missing_names: list[str]
    left_out: bool
    """Whether these are whole layers or modules, and the optimizers hold no tensors without a
    gradient that the model has lost."""
    resting_names: list[str]
    """Tensors of groups whose learning rate was 0 in the first update."""
    thawed: int
    """Those of them that were frozen before the first update."""
    thawed_names: list[str]


class UpdateFacts(TypedDict, total=False):
    """The updates of a look; missing with several ranks or a compiled optimizer."""

    optimizers: list[FollowedOptimizer]
    holding: Holding
    schedules: list[Schedule]
    planned_updates: int
    """Updates of the whole training, if the trainer knows them."""
    loader_length: int
    """Batches of the `DataLoader` that yielded last."""
    modes: list[bool]
    """Per update of the first optimizer: whether any module was in training mode."""
    noisy_modules: int
    """Modules that compute otherwise in training mode, such as dropout, and were in it first; all
    of them if no module was."""


class Warned(TypedDict):
    """What a library warned of."""

    library: str
    text: str


class LoadFacts(TypedDict):
    """A `load_state_dict` that loaded nothing."""

    model: str
    given: int
    """Tensors of the checkpoint."""
    name: str
    """One that was given."""
    wanted: str
    """One that the model has."""


class ClipFacts(TypedDict):
    """The clips of a look that have a limit."""

    clips: int
    empty: int
    """Those that got no tensor with a gradient."""
    scaled: int
    """Those of gradients that a scaler had multiplied and not yet divided."""


class LoaderFacts(TypedDict, total=False):
    """What the workers of one `DataLoader` did in their first two fetches."""

    workers: int
    seen: int
    """Workers that reported both fetches."""
    stream: bool
    """Whether the workers split an `IterableDataset`."""
    draw_the_same: list[str]
    """Generators that drew in both fetches, and had the same state in several workers when they
    began."""
    same_rows: bool
    """Of a stream: whether all workers gave the same two batches, which differ from each other.
    Missing if a batch could not be hashed."""


class NewTokens(TypedDict):
    """Tokens that were added to the model's embeddings."""

    first: int
    frozen: bool
    """Whether neither embeddings nor head train, and the new rows are as they were made."""
    rows: int
    rows_with: int
    """Rows of the dataset with such a token, of those that were searched."""


class TextFacts(TypedDict, total=False):
    """What a tokenizer and a model would do with a text by themselves."""

    new_tokens: NewTokens
    rows_read: int
    """Rows of the dataset whose ends were compared with the chat template."""
    rows_open: int
    """Those that end with the start of another answer."""

    sets_bos: bool
    """Whether the tokenizer sets BOS at the beginning of a text."""
    template_sets_bos: bool
    """Whether the chat template writes BOS; missing without one."""


class Facts(TypedDict, total=False):
    """What only the rules read (`canary.compare.rules`). It keeps unknown keys."""

    __pydantic_config__ = {"extra": "allow"}  # type: ignore[misc]  # noqa: RUF012

    loaders: list[LoaderFacts]
    """By kind of loader; missing if no worker reported anything."""
    texts: TextFacts
    warned: list[Warned]
    loads: list[LoadFacts]
    clips: ClipFacts
    """Missing if nothing was clipped."""
    own_advantages: str
    """The method with which the user's code groups completions; missing if a library does."""

    unseen: dict[str, str]
    """Subjects that could not be watched, and why."""
    updates: UpdateFacts
