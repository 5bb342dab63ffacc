"""The config of a canary: a frozen schema that refuses unknown keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, create_model

from canary.config.metric_gates import MOST_GATES, MetricGate
from canary.config.output import OUTPUT_DIR
from canary.config.sections import CheckConfig, ImportConfig, PPOConfig, Real, SpeedConfig, Strict
from canary.config.spans import LOOK_STEPS
from canary.config.threshold_keys import ThresholdsConfig
from canary.config.trainers import (
    DEFAULT_TRAINER,
    TRAINERS,
    TrainerRow,
    by_value,
    trainer_row,
    training_types,
)

if TYPE_CHECKING:
    TrainingType = str
else:
    TrainingType = Literal[training_types()]
TRAINING_TYPES = tuple(TRAINERS)
ONLINE_TRAINERS = tuple(name for name, row in TRAINERS.items() if row.online)
"""Trainers that generate their training data."""


DottedPath = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")]
"""`package.module:function`, imported from the working directory."""


class ProfilerConfig(Strict):
    """The steps that torch.profiler records, and the details that it records."""

    enabled: bool = False
    """Profile some of the measured steps; the speeds leave these steps out."""
    start_step: int = Field(20, ge=1)
    """First profiled step, counted from 1."""
    num_steps: int = Field(5, ge=1)
    """Number of profiled steps."""
    output_dir: str | None = Field(None, min_length=1)
    """Folder of the trace; null: `profiler` in the run folder."""
    record_shapes: bool = False
    """Record the input shapes of operators in the trace."""
    profile_memory: bool = False
    """Record allocations in the trace."""
    with_stack: bool = False
    """Record Python calls in the trace (slow)."""


class _Training(Strict):
    """What trains, and its name."""

    name: str = Field("canary", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """Name of the canary; part of the names of its run folders."""
    description: str = ""
    """Free text for readers."""
    training_type: TrainingType = DEFAULT_TRAINER
    """The trainer; `exec` runs your `command`."""
    command: tuple[str, ...] = Field((), strict=False)
    """For `exec`: the program that trains, and its arguments."""


if TYPE_CHECKING:

    class _WithImport(_Training):
        pass

else:
    # `import` is a word of Python, so no class body can declare it.
    _WithImport = create_model(
        "_WithImport",
        __base__=_Training,
        **{
            "import": (
                ImportConfig | None,
                Field(None, description="For `exec`: make the record from what `command` leaves."),
            )
        },
    )


class CanaryConfig(_WithImport):
    """One canary. Fields that only some trainers use are null until `load_config` sets them."""

    model_name: str = Field("embedded/tiny", min_length=1)
    """`embedded/tiny`, `embedded/random-70m` (10m to 1b), a Hugging Face id or local folder."""
    model_revision: str | None = None
    """Branch, tag or commit of a hub model."""
    trust_remote_code: bool = False
    """Run the code that comes with a hub model."""
    attn_implementation: str | None = Field(
        None, pattern=r"^(eager|sdpa|flash_attention_[23]|[\w.-]+/[\w.-]+(@[\w.-]+)?(:\w+)?)$"
    )
    """Attention kernel: `eager`, `sdpa`, `flash_attention_2`, `flash_attention_3`, or one from the
    hub (`kernels-community/flash-attn2`); null: transformers chooses."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """`bfloat16` and `float16` train under autocast with float32 master weights."""
    use_peft: bool = False
    """Train LoRA adapters instead of the whole model."""
    lora_r: int | None = Field(None, ge=1)
    """Rank of the adapters (8)."""
    lora_alpha: int | None = Field(None, ge=1)
    """Scale of the adapters (16)."""
    lora_dropout: Real | None = Field(None, ge=0, lt=1)
    """Dropout of the adapters (0)."""
    load_in_4bit: bool = False
    """Load the model in 4 bits (bitsandbytes)."""
    load_in_8bit: bool = False
    """Load the model in 8 bits (bitsandbytes)."""

    dataset_name: str = Field("embedded/tasks", min_length=1)
    """`embedded/tasks`, a Hugging Face id, or a local JSONL, parquet or saved dataset."""
    dataset_revision: str | None = None
    """Branch, tag or commit of a hub dataset."""
    dataset_split: str = Field("train", min_length=1)
    """Split of the dataset."""
    dataset_size: int | None = Field(None, ge=1)
    """Use only the first N rows; null: all."""
    allow_repeat: bool = False
    """Repeat rows without a note; allow batches smaller than `batch_size`."""

    max_steps: int | None = Field(None, ge=1)
    """Optimizer steps (100; for `exec`: the whole training)."""
    batch_size: int = Field(4, ge=1)
    """Sequences, pairs or completions per micro-batch."""
    gradient_accumulation_steps: int = Field(2, ge=1)
    """Micro-batches per step."""
    learning_rate: Real | None = Field(
        None, gt=0, description=f"Peak learning rate ({by_value('learning_rate')})."
    )
    warmup_steps: int = Field(0, ge=0)
    """Steps of linear learning-rate warm-up."""
    max_length: int | None = Field(None, ge=8)
    """Longest sequence in tokens (256)."""
    max_prompt_length: int | None = Field(None, ge=1)
    """Keep only the last N tokens of a prompt; null: all of them."""
    beta: Real | None = Field(
        None,
        ge=0,
        description=(
            f"Weight of the KL ({by_value('beta', reference=True)}) or of the preference term "
            f"({by_value('beta', reference=False)})."
        ),
    )
    max_new_tokens: int | None = Field(None, ge=1)
    """Longest completion in tokens (32)."""
    num_generations: int | None = Field(None, ge=2)
    """Completions per prompt (4)."""
    temperature: Real | None = Field(None, gt=0)
    """Sampling temperature (1.0)."""
    fixed_length: bool = False
    """Sample every completion to `max_new_tokens`: equal work per step."""
    seed: int = Field(42, ge=0, lt=2**32)
    """Seed of model, data order and sampling."""
    trainer_args: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of the trainer's config class, which checks them."""

    ppo: PPOConfig | None = None
    """Settings of PPO."""
    speed: SpeedConfig = Field(default_factory=lambda: SpeedConfig())
    """Switches that make training faster."""

    reward_functions: tuple[DottedPath, ...] = Field((), strict=False)
    """Your reward functions, each `package.module:function`, called as trl calls them. The data
    then needs no `answer` column."""
    data_collator: DottedPath | None = None
    """`package.module:function` that turns a list of tokenized rows into a batch, or a class that
    is built with the tokenizer."""
    callbacks: tuple[DottedPath, ...] = Field((), strict=False)
    """Each `package.module:name` is a callback, a TrainerCallback class, or a function that returns
    a callback."""
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    """`auto`, `cpu`, `cuda` or `cuda:N`."""
    threads: int | None = Field(1, ge=1)
    """CPU threads of torch; null (default for `exec`): torch chooses."""
    nproc: int | None = Field(None, ge=1)
    """Ranks on this machine, started by torchrun; null: one process."""
    num_workers: int = Field(0, ge=0)
    """Processes that load data."""
    report_to: tuple[str, ...] = Field((), strict=False)
    """Trackers by their names in transformers, such as `wandb`."""

    stop_on: Literal["low", "medium", "high", "critical"] | None = None
    """Stop training at an alert of this severity or higher; the run then fails."""
    metrics_warmup_steps: int | None = Field(None, ge=0)
    """Steps after the look that the speeds leave out; null: 4 (10 without a look), or a fifth of
    them if less."""
    look_steps: int = Field(LOOK_STEPS, ge=0)
    """First steps that are looked at closely and not timed: at most a third of all, unless `exact`
    ends the training there; 0: no look."""
    exact: bool = False
    """End the training after the look; speeds are not compared."""
    repeats: int = Field(1, ge=1)
    """Launches of a run, one after the other."""
    timeout: Real = Field(1800.0, gt=0)
    """Seconds for the whole run (`exec`: a week)."""
    output_dir: str = Field(f"./{OUTPUT_DIR}", min_length=1)
    """Folder for run folders."""
    profiler: ProfilerConfig = Field(default_factory=lambda: ProfilerConfig())
    """Profiling."""
    thresholds: ThresholdsConfig = Field(default_factory=lambda: ThresholdsConfig())
    """Limits of comparisons."""

    metrics: tuple[MetricGate, ...] = Field((), strict=False, max_length=MOST_GATES)
    """Gates on any metric of the trainer, a list ([metrics.md](metrics.md))."""
    check: CheckConfig = Field(default_factory=lambda: CheckConfig())
    """What `canary check` asks."""

    @property
    def imports(self) -> ImportConfig | None:
        """The section `import`."""
        section: ImportConfig | None = getattr(self, "import")
        return section

    @property
    def trainer(self) -> TrainerRow:
        """The trainer's row in `TRAINERS`."""
        return trainer_row(self.training_type)

    @property
    def bound_to_micro_batch(self) -> str:
        """Why a row's loss depends on the rows of its micro-batch; empty if it does not."""
        return self.trainer.bound_to_micro_batch(self.trainer_args)
