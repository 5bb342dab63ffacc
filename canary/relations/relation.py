"""What a relation is, what it may ask of a training, and what it answers.

A relation is two ways to do the same work that must agree. Each file of this package holds one:
`RELATION`, and `ask` if the training process can judge it beside the first update. The files import
no torch, so that every process can name them; tensors come from the `Look`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypedDict

from canary.relations.documents import Document, Example
from canary.relations.leftover import Buffer
from canary.relations.sampling import Sampling
from canary.relations.trained import TrainedUpdate

Tensor = Any
"""A torch.Tensor."""
RelationStatus = Literal["holds", "broken", "not applicable", "undecided", "not asked"]
Group = Literal[
    "same work", "neighbours", "what is trained", "start and end", "sampling", "machine"
]
Moment = Literal["first", "last"]
"""When `ask` is called: before the first update, or when the training ends."""


class Outcome(TypedDict):
    """What a relation showed."""

    relation: str
    status: RelationStatus
    message: str
    """One sentence without a full stop: both values, or why it was not judged."""
    place: str
    """The first place where both sides part; empty without one."""
    values: list[float]
    """Both values there; empty without numbers."""
    tolerance: float | None
    """How far both sides may differ, from measured rounding; None where nothing is rounded."""


class Variation(TypedDict, total=False):
    """What another launch of the same training does in another way."""

    name: str
    """For the terminal and messages."""
    arguments: dict[str, Any]
    """Fields of `transformers.TrainingArguments`."""
    evaluate_every: int
    """Updates between evaluations, on a few training rows if there are no others."""
    save_at: int
    """Save a checkpoint after this update, into the run's folder."""
    resume: bool
    """Begin at the checkpoint that the launch before saved."""
    no_dropout: bool
    """Switch dropout off: its masks differ between ways to do the same."""
    perturbed: int
    """Move each parameter by one rounding, with random signs of this seed."""
    ranks: int
    """Train on so many ranks, each with its share of an update's micro-batches."""
    saved_in: str
    """The run's folder of the launch before; `canary check` fills it in."""
    workers: int
    """Load data with so many workers of each `DataLoader`."""
    widened: int
    """Add so many columns of padding to each batch of a `DataLoader` that has a padded row."""
    no_random: bool
    """Not applicable if random numbers are drawn although dropout is off, or tokens sampled."""
    killed: bool
    """End the process at the update after the first one that a checkpoint followed. The launch
    runs in a copy of the working folder."""
    restarted: bool
    """Start the command again in the copy of the launch before."""


SAME: Variation = {"no_dropout": True, "workers": 0}
"""What launches have in common whose losses are compared: nothing is drawn at random. A worker has
random numbers of its own, and without workers it shows whether rows are drawn."""


@dataclass(frozen=True)
class Relation:
    """One relation."""

    id: str
    group: Group
    holds: str
    """What must hold, as a sentence without a full stop."""
    likely: str
    """What is likely wrong if it is broken."""
    source: str
    """Where the idea, or an incident of the kind, is described."""
    moment: Moment | None = "first"
    """None: `ask` does not exist."""
    slow: bool = False
    """Whether `ask` takes so long that `--quick` leaves it out."""
    invariants: tuple[str, ...] = ()
    """Checks of the record that judge it (`docs/verdict.md`)."""
    inapplicable: str = ""
    """What is said if none of its invariants is for this trainer; empty: what they say."""
    variations: tuple[Variation, ...] = ()
    """More launches, in this order. `judge` of the relation's file gets what they recorded."""
    of_loop: tuple[Variation, ...] = ()
    """The same for a plain loop of torch or accelerate."""
    no_loop: str = ""
    """Why a plain loop has none."""


@dataclass(frozen=True)
class Changed:
    """A gradient that something changed between two micro-batches of an update."""

    name: str
    micro_batch: int
    """The one before."""
    was: float
    """Its norm."""
    now: float


class Call(Protocol):
    """One call of the policy whose loss trained it."""

    module: Any
    """The model that was called."""
    arguments: dict[str, Any]
    """By name, with copies of tensors."""
    shape: tuple[int, ...]
    """Of the logits: (rows, tokens, vocabulary), or (rows, classes)."""
    training: bool
    """Whether the model was in training mode."""
    weights: Tensor | None
    """Shape (rows, tokens): how much each position's label was raised; negative if lowered, 0 if it
    was not trained on."""
    labels: Tensor | None
    """Shape (rows, tokens): the token that each position was trained towards."""
    log_probs: Tensor | None
    """Shape (rows, tokens - 1), on the CPU: what the call said of its own tokens but the first."""

    strengths: Tensor | None
    """Shape (rows, tokens): how strongly the loss pulls at each position, whatever its label."""

    @property
    def ids(self) -> Tensor | None:
        """Token ids, shape (rows, tokens)."""

    @property
    def scores_tokens(self) -> bool:
        """Whether the logits are those of tokens."""

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether its ids are those of an encoder, and its logits those of a decoder."""

    @property
    def are_labels_known(self) -> bool:
        """Whether the model got its labels and returned their log-probabilities."""


class Reference(Protocol):
    """Who was called without gradients: another model of the same shapes, or the policy with other
    adapters."""

    module: Any

    @property
    def what(self) -> str:
        """Who it is, for people."""

    @property
    def is_policy(self) -> bool:
        """Whether it is the policy with other adapters."""

    @property
    def training(self) -> bool:
        """Whether it was in training mode."""

    def scores(self, call: Any, seed: int | None = None) -> Tensor:
        """Ask it about a call of the policy; see `Look.scores`. `seed`: in its own modes, with
        these random numbers; None: in evaluation mode."""


class Look(Protocol):
    """What a relation sees: the first update of a training, before its optimizer steps.

    The model is in evaluation mode. Modes, buffers and random states are restored afterwards.
    """

    model: Any
    calls: Sequence[Call]
    """Calls of the first update, in their order."""
    optimizers: Sequence[Any]
    trainer: Any
    """The transformers Trainer; None for another loop."""
    pad_id: int | None
    modes: Sequence[bool]
    """Whether the policy was in training mode, one per update so far."""
    updates: int
    changed: Changed | None
    """The first gradient that was changed between the micro-batches of the first update."""
    lost: int
    """Of the first two updates: those of which only the last micro-batch has gradients left."""
    first_gradients: Mapping[str, int]
    """The first update in which each parameter had a gradient, from 1."""
    schedulers: Sequence[tuple[Any, int]]
    """Schedulers of torch, and how often each stepped after its start."""
    rates: Sequence[float]
    """The learning rate of each update so far, of the first group of parameters."""

    def wanted_rates(self) -> Sequence[float] | None:
        """Return the learning rates that the arguments of a transformers Trainer give; None if the
        training brings its own scheduler."""

    @property
    def tokenizer(self) -> Any:
        """The trainer's tokenizer, or the only one of a loop; None if there is none."""

    @property
    def examples(self) -> Sequence[Example]:
        """Rows of the trainer's dataset that its loader has drawn so far, with all columns."""

    def documents(self, call: Call) -> Sequence[Document]:
        """Return the texts of a call: its rows without padding, and packed rows taken apart.

        Raises:
            CannotAsk: what the loss trains on cannot be read from its gradient.
        """

    def strengths_by_place(self, call: Call) -> Sequence[Sequence[float]]:
        """Return how strongly the loss pulls at each token of a call that has strengths, per row
        and token: the size of the gradient at the position before it."""

    def by_place(
        self, call: Call
    ) -> tuple[Sequence[Sequence[float | None]], Sequence[Sequence[int]]]:
        """Return (weights, labels) of a call that has weights, per row and token: how much a token
        was raised, and which token its place was trained towards. A weight may be unknown: None."""

    def raised(self, call: Call) -> Sequence[tuple[Document, float]]:
        """Return the texts of a call, and how much the loss raises each: its log-probability, or
        its score if the model gives one per row. Empty if that is not known."""

    def compiled(self, call: Call) -> Tensor | None:
        """Return the scores of a call that torch.compile has traced; None if it made no graph.

        Raises:
            CannotAsk: the model is compiled already, or there is no compiler.
        """

    def swapped(self) -> Sequence[tuple[Document, float]] | None:
        """Return the same for the first batch with its chosen and rejected rows swapped; None if
        its layout is not known."""

    buffer: Buffer
    """What a buffer that a collator reuses would hold, over all calls so far."""
    sampling: Sampling
    """What was sampled, by which weights, and how it was rewarded."""
    trained: Sequence[TrainedUpdate]
    """The first updates so far, with the weights of their rows."""

    @property
    def call(self) -> Call:
        """The first call with several rows, else the first one."""

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end a text."""

    @property
    def references(self) -> Sequence[tuple[Any, Call]]:
        """Other models of the same shapes that were called without gradients, with one call."""

    @property
    def reference_calls(self) -> Sequence[Reference]:
        """Who may be a reference: it was called without gradients, and is no sampler."""

    def scores(self, call: Call, **changed: Any) -> Tensor:
        """Call the model again with changed arguments; None leaves one out.

        Returns the log-probability of each next token, shape (rows, tokens - 1). Of a model that
        scores rows it returns the logits.
        """

    def compared(
        self, relation: str, call: Call, before: Tensor, after: Tensor, counts: Tensor | None = None
    ) -> Outcome:
        """Compare scores within the tolerance; `counts`: True where a score counts."""

    def other_checkpointing(self) -> AbstractContextManager[None]:
        """Switch activation checkpointing off if it is on, else on.

        Raises:
            CannotAsk: the model cannot switch it.
        """

    def merged(self) -> AbstractContextManager[int]:
        """Merge all adapters that the model's own modules can merge, and put everything back after
        the block. It gives how many were merged."""

    def gradients(self, call: Call) -> Mapping[str, Tensor] | None:
        """Run forward and backward of a call again, with the gradient that its logits had, and
        return the gradients by parameter; None if that gradient is not known."""

    def compared_gradients(
        self, relation: str, before: Mapping[str, Tensor], after: Mapping[str, Tensor]
    ) -> Outcome:
        """Compare gradients within the tolerance."""

    def spans(self, call: Call) -> Sequence[tuple[int, int]]:
        """Return (first, end) of each row's example, without its padding."""

    def counted(self, call: Call, scores: Tensor) -> Tensor:
        """Return True where a score is of a real token that follows a real one."""

    def example(self, scores: Tensor, row: int, span: tuple[int, int], width: int) -> Tensor:
        """Return the scores of the example between two tokens of a row of `width` tokens."""

    def picked(self, call: Call, rows: Sequence[int]) -> dict[str, Any]:
        """Return the arguments of some rows, in this order."""

    def cut(self, call: Call, row: int, first: int, end: int) -> dict[str, Any]:
        """Return the arguments of one row between two tokens."""

    def widened(self, call: Call, row: int, columns: int, side: str) -> dict[str, Any]:
        """Return the arguments of one row with more columns of padding on a side."""

    def named_parameters(self) -> Sequence[tuple[str, Any]]:
        """Return the policy's parameters by name."""


class CannotAsk(Exception):
    """The relation says nothing about this training; the text says why."""


def outcome(
    relation: str,
    status: RelationStatus,
    message: str,
    place: str = "",
    values: Sequence[float] = (),
    tolerance: float | None = None,
) -> Outcome:
    """Return an answer."""
    return Outcome(
        relation=relation,
        status=status,
        message=message,
        place=place,
        values=[float(value) for value in values],
        tolerance=tolerance,
    )


def holds(relation: Relation, message: str) -> Outcome:
    """Return that both sides agree."""
    return outcome(relation.id, "holds", message)


def broken(
    relation: Relation, message: str, place: str = "", values: Sequence[float] = ()
) -> Outcome:
    """Return that both sides part."""
    return outcome(relation.id, "broken", message, place, values)


def token_call(look: Look) -> Call:
    """Return the call to ask about tokens.

    Raises:
        CannotAsk: the model has no token logits.
    """
    call = look.call
    if call.ids is None:
        raise CannotAsk("the model gets no token ids")
    if not call.scores_tokens:
        raise CannotAsk("the model has no token logits")
    return call


def is_packed(call: Call) -> bool:
    """Whether positions begin again within a row."""
    positions = call.arguments.get("position_ids")
    if positions is None or getattr(positions, "dim", lambda: 0)() != 2:
        return any(name.startswith("cu_seq") for name in call.arguments)
    again = positions[:, 1:] < positions[:, :-1]
    mask = call.arguments.get("attention_mask")
    if mask is not None and getattr(mask, "shape", None) == positions.shape:
        again = again & mask[:, 1:].bool()  # Positions of padding may be any.
    return bool(again.any())


def unpacked_call(look: Look) -> Call:
    """Return a call whose rows hold one example each.

    Raises:
        CannotAsk: there is none.
    """
    call = token_call(look)
    if is_packed(call):
        raise CannotAsk("the rows hold several packed documents")
    return call


def other_ids(ids: Tensor, call: Call) -> Tensor:
    """Return ids of the same shape, each another one of the vocabulary."""
    size = call.shape[-1] if call.scores_tokens else max(int(ids.max()), 13) + 1
    return (ids + 13) % max(2, size)
