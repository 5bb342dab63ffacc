"""verl: JSON lines and the console, by verl's own `Tracking` and metric functions."""

from __future__ import annotations

import contextlib
import io
import os
from importlib.metadata import version

from common import GIB, Output, around, bar, falling, fresh, ray, write_expected
from standins import stand_in

stand_in("ray", "pyvers")

import torch
from verl import DataProto
from verl.trainer.ppo.metric_utils import (
    compute_data_metrics,
    compute_throughout_metrics,
    compute_timing_metrics,
)
from verl.utils.debug.metrics import calculate_debug_metrics
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import rename_dict
from verl.utils.tracking import Tracking

STEPS = 12
SAMPLES, PROMPT, RESPONSE, GPUS = 8, 6, 16, 2


def batch(step: int) -> DataProto:
    """A batch after the rollout, with growing rewards."""
    torch.manual_seed(step)
    lengths = torch.randint(4, RESPONSE + 1, (SAMPLES,))
    response_mask = (torch.arange(RESPONSE)[None] < lengths[:, None]).long()
    reward = torch.zeros(SAMPLES, RESPONSE)
    right = (torch.rand(SAMPLES) < 0.2 + 0.05 * step).float()
    reward[torch.arange(SAMPLES), lengths - 1] = right
    old = -torch.rand(SAMPLES, RESPONSE)
    advantages = (right - right.mean())[:, None] * response_mask
    return DataProto.from_dict(
        tensors={
            "prompts": torch.ones(SAMPLES, PROMPT, dtype=torch.long),
            "responses": torch.ones(SAMPLES, RESPONSE, dtype=torch.long),
            "attention_mask": torch.cat([torch.ones(SAMPLES, PROMPT), response_mask], 1).long(),
            "response_mask": response_mask,
            "token_level_scores": reward,
            "token_level_rewards": reward,
            "advantages": advantages,
            "returns": advantages,
            "old_log_probs": old,
            "rollout_log_probs": old + 0.01 * torch.randn(SAMPLES, RESPONSE),
        },
        meta_info={"global_token_num": (PROMPT + lengths).tolist()},
    )


def rows() -> list[dict[str, object]]:
    """One row a step, put together as `fit` of the trainer does."""
    loss = falling("verl loss", STEPS, 0.08, 0.01, 0.2)
    norm = falling("verl norm", STEPS, 0.9, 0.3, 0.1)
    entropy = falling("verl entropy", STEPS, 0.61, 0.38)
    step_time = around("verl step", STEPS, 23.4)
    made = []
    for index in range(STEPS):
        data = batch(index)
        actor = {
            "actor/pg_loss": [loss[index] * 0.9, loss[index] * 1.1],
            "actor/pg_clipfrac": [0.001 * index, 0.002 * index],
            "actor/ppo_kl": [0.0001 * index, 0.0002 * index],
            "actor/pg_clipfrac_lower": [0.0, 0.0],
            "kl_loss": [0.0005 * index, 0.0007 * index],
            "kl_coef": 0.001,
            "grad_norm": [norm[index] * 0.95, norm[index] * 1.05],
            "lr": 1e-06,
            "perf/max_memory_allocated_gb": 31.25 + 0.125 * (index > 2),
            "perf/max_memory_reserved_gb": 40.5,
            "perf/cpu_memory_used_gb": 118.4375,
        }
        row: dict[str, object] = {"actor/entropy": entropy[index]}
        row |= calculate_debug_metrics(data)
        row |= reduce_metrics(rename_dict(actor, "actor/"))
        row |= {"training/global_step": index + 1, "training/epoch": 0}
        timing = {
            "gen": 0.55 * step_time[index],
            "reward": 0.02,
            "old_log_prob": 1.21,
            "adv": 0.013,
            "update_actor": 0.3 * step_time[index],
            "step": step_time[index],
        }
        row |= compute_data_metrics(batch=data, use_critic=False)
        row |= compute_timing_metrics(batch=data, timing_raw=timing)
        row |= compute_throughout_metrics(batch=data, timing_raw=timing, n_gpus=GPUS)
        if index + 1 in (6, 12):
            row["val-core/openai/gsm8k/reward/mean@1"] = 0.31 + 0.01 * index
        made.append(row)
    return made


def main() -> None:
    folder = fresh("verl")
    os.environ["VERL_FILE_LOGGER_PATH"] = str(folder / "run.jsonl")
    made = rows()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        tracking = Tracking("gsm8k", "qwen_grpo", default_backend=["console", "file"])
        tracking.log({"val-core/openai/gsm8k/reward/mean@1": 0.2812}, step=0)
        for index, row in enumerate(made, start=1):
            tracking.log(row, step=index)
    lines = [line for line in printed.getvalue().splitlines() if line.startswith("step:")]
    log = [
        "\x1b[36m(pid=10311)\x1b[0m /usr/lib/python3/site-packages/ray/_private/worker.py:2046: "
        "FutureWarning: Tip: In future versions of Ray, Ray will no longer override accelerator "
        "visible devices env var if num_gpus=0\n",
        ray(
            "Using LocalLogger is deprecated. The constructor API will change ", "TaskRunner", 10311
        ),
        ray(
            "Checkpoint tracker file does not exist: latest_checkpointed_iteration.txt\n"
            "Training from scratch",
            "TaskRunner",
            10311,
        ),
        ray(
            "('Initial validation metrics: '\n"
            " \"{'val-core/openai/gsm8k/reward/mean@1': 0.2812}\")",
            "TaskRunner",
            10311,
        ),
    ]
    for index, line in enumerate(lines):
        log.append(ray(line, "TaskRunner", 10311))
        log.append(bar("Training Progress", index, STEPS, 23.4 * index) + "\n")
        if index == 4:
            log.append(
                "\x1b[36m(WorkerDict pid=10533)\x1b[0m INFO:2026-08-22 10:02:14,511:"
                "[FSDP] gradient offload: step: 4 of the bucket | loss:skipped\n"
            )
    (folder / "console.log").write_text("".join(log))

    names = {
        "loss": "actor/pg_loss",
        "grad_norm": "actor/grad_norm",
        "learning_rate": "actor/lr",
        "step_time_s": "timing_s/step",
        "generation_time_s": "timing_s/gen",
        "tokens_per_sec_per_gpu": "perf/throughput",
        "reward": "critic/score/mean",
        "kl": "actor/kl_loss",
        "entropy": "actor/entropy",
        "clip_fraction": "actor/pg_clipfrac",
        "completion_length": "response_length/mean",
        "mismatch": "training/rollout_probs_diff_mean",
    }
    steps = list(range(1, STEPS + 1))
    own = f"the framework's own writer verl {version('verl')}"
    outputs = []
    for path, form in (("run.jsonl", "jsonl"), ("console.log", "console")):
        output = Output(path, form, own, steps)
        output.note = "step 0 has only the validation's score"
        for ours, name in names.items():
            output.has(ours, name, [float(row[name]) for row in made])  # type: ignore[arg-type]
        memory = "actor/perf/max_memory_allocated_gb"
        output.has("max_memory_bytes", memory, [float(row[memory]) for row in made], GIB)  # type: ignore[arg-type]
        outputs.append(output)
    write_expected("verl", outputs)


if __name__ == "__main__":
    main()
