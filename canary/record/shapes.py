"""Shapes of the parts of a record that are plain mappings: what a reader relies on.

Keys that are not named here are free; a key that is named has this type or is null.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from canary.record.alerts import MOST as MOST_ALERTS
from canary.record.types import Number

Numbers = list[Number | None]


class Shape(BaseModel):
    """Any other key may be there."""

    model_config = ConfigDict(extra="allow")


class Signal(Shape):
    """One of a rollout's tensors, a value a step."""

    count: list[int] = []
    mean: Numbers = []
    rms: Numbers = []
    placed: Numbers = []


class RolloutSignals(Shape):
    """What online RL made of its completions."""

    tokens: list[int] = []
    signals: dict[str, Signal] = {}


class FirstLoss(Shape):
    """The raw loss of step 1."""

    loss: Number | None = None
    micro_losses: Numbers | None = None
    updates: Numbers | None = None


class FirstGradient(Shape):
    """Its gradient norms."""

    total: Number | None = None
    groups: dict[str, Number | None] = {}
    tensors_without_gradient: list[str] = []


class FirstUpdate(Shape):
    """The first change of the parameters."""

    delta_norm: Number | None = None
    tensors_changed: int | None = None
    tensors_unchanged: list[str] = []


class Clipping(Shape):
    """Gradient norms of each step, before clipping and as they were applied."""

    before: Numbers = []
    applied: Numbers = []


class Trajectory(Shape):
    """What follows."""

    losses: Numbers = []
    grad_norms: Numbers = []
    learning_rates: Numbers = []
    rl: dict[str, Numbers] = {}


class Work(Shape):
    """What one step does."""

    step: int | None = None
    operators: dict[str, int] = {}
    operator_total: Number | None = None
    flops: Number | None = None
    tokens_fed: Number | None = None
    host_reads: Number | None = None
    collectives: Number | None = None
    recompiles: Number | None = None


class LiveMemory(Shape):
    """Tensors alive after each step."""

    live_tensors: list[int] = []
    live_bytes: list[int] = []
    start_bytes: int | None = None


class Micro(Shape):
    """One micro-batch."""

    rows: dict[str, list[str]] = {}
    texts: dict[str, list[str]] = {}
    label_tokens: Number | None = None
    input_tokens: Number | None = None
    sequences: Number | None = None
    eos_labels: Number | None = None
    eos_inputs: Number | None = None
    bos_tokens: Number | None = None
    advantages: Numbers = []


class OwnCode(Shape):
    """A function of the user's own."""

    name: str = ""
    file: str = ""
    line: int = 0
    sha256: str = ""


class Evidence(Shape):
    """What a diagnosis may point to."""

    settings: dict[str, Any] = {}
    code: dict[str, OwnCode] = {}


class Exact(Shape):
    """Everything the probe saw."""

    data: dict[str, Any] = {}
    batches: list[list[Micro]] = []
    evidence: Evidence = Evidence()
    model: dict[str, Any] = {}
    rollout: RolloutSignals = RolloutSignals()
    first_loss: FirstLoss = FirstLoss()
    first_gradient: FirstGradient = FirstGradient()
    first_update: FirstUpdate = FirstUpdate()
    clipping: Clipping = Clipping()
    trajectory: Trajectory = Trajectory()
    work: Work = Work()
    memory: LiveMemory = LiveMemory()
    calls: dict[str, Number | None] = {}


class Env(Shape):
    """The machine."""

    device: dict[str, Any] | None = None
    gpus: list[dict[str, Any]] | None = None
    packages: dict[str, Any] | None = None


class Git(Shape):
    """The commit."""

    sha: str | None = None
    dirty: bool | None = None


class Config(Shape):
    """The resolved config of the run."""

    thresholds: dict[str, Any] | None = None
    trainer_args: dict[str, Any] | None = None


class Calls(Shape):
    """Calls of the measured launch."""

    tokenizer_calls: Number | None = None
    dataset_maps_executed: Number | None = None


class AlertShape(Shape):
    """One alert."""

    severity: Literal["low", "medium", "high", "critical"]
    category: Annotated[str, Field(max_length=64)]
    type: Annotated[str, Field(max_length=64)]
    message: Annotated[str, Field(max_length=4000)]
    step: int
    value: Number | None = None
    threshold: Number | None = None


class Parts(Shape):
    """The parts of a record that its own type leaves open."""

    env: Env = Env()
    git: Git = Git()
    config: Config = Config()
    exact: Exact = Exact()
    io: Calls = Calls()
    alerts: Annotated[list[AlertShape], Field(max_length=MOST_ALERTS)] = []
