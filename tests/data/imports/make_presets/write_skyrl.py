"""SkyRL: TensorBoard and the console, by `Tracking` of its wheel (unpacked, on PYTHONPATH)."""

from __future__ import annotations

import importlib.util
import io
import os
import sys
from pathlib import Path

from common import Output, around, falling, fresh, hide_host, ray, single, write_expected
from standins import stand_in

STEPS = 10
VERSION = "0.4.0"


def rows() -> list[dict[str, object]]:
    """`all_metrics` of `RayPPOTrainer.train` and its timings, one a step."""
    loss = falling("skyrl loss", STEPS, 0.05, 0.01, 0.2)
    norm = falling("skyrl norm", STEPS, 0.7, 0.2, 0.1)
    reward = [1 - value for value in falling("skyrl reward", STEPS, 0.8, 0.35, 0.03)]
    length = around("skyrl length", STEPS, 320.0, 0.05)
    step_time = around("skyrl step", STEPS, 41.0)
    return [
        {
            "generate/min_num_tokens": 12,
            "generate/max_num_tokens": 1024,
            "generate/avg_num_tokens": length[index],
            "generate/std_num_tokens": 140.5,
            "reward/avg_pass_at_8": 0.75,
            "reward/avg_raw_reward": reward[index],
            "loss/avg_final_rewards": reward[index],
            "loss/avg_raw_advantages": 0.0021,
            "policy/rollout_train_logprobs_abs_diff_max": 0.31,
            "policy/rollout_train_logprobs_abs_diff_min": 0.0,
            "policy/rollout_train_logprobs_abs_diff_mean": 0.0042 + 0.0001 * index,
            "policy/rollout_train_logprobs_abs_diff_std": 0.011,
            "policy/final_loss": loss[index] * 1.01,
            "policy/policy_loss": loss[index],
            "policy/policy_entropy": 0.41 - 0.008 * index,
            "policy/loss_metrics/clip_ratio": 0.0008 * index,
            "policy/policy_kl": 0.0003 * index,
            "policy/policy_lr": 1e-06,
            "policy/grad_norm": norm[index],
            "timing/generate": step_time[index] * 0.6,
            "timing/fwd_logprobs_values_reward": 3.1,
            "timing/policy_train": step_time[index] * 0.25,
            "timing/train_critic_and_policy": step_time[index] * 0.26,
            "timing/sync_weights": 1.9,
            "timing/step": step_time[index],
            "trainer/tokens_per_second_per_gpu": 5120.0 * 41.0 / step_time[index],
            "trainer/epoch": 0,
            "trainer/global_step": index + 1,
        }
        for index in range(STEPS)
    ]


def main() -> None:
    stand_in("skyrl")
    wheel = next(
        found
        for entry in sys.path
        if (found := Path(entry, "skyrl/train/utils/tracking.py")).exists()
    )
    spec = importlib.util.spec_from_file_location("skyrl.train.utils.tracking", wheel)
    assert spec is not None
    assert spec.loader is not None
    tracking = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = tracking
    spec.loader.exec_module(tracking)

    folder = fresh("skyrl")
    made = rows()
    os.environ["TENSORBOARD_DIR"] = str(folder / "tensorboard_log")
    board = tracking.Tracking("gsm8k", "run", backend="tensorboard")
    printed = io.StringIO()
    # As `configure_ray_worker_logging` of skyrl/train/utils/utils.py has it.
    tracking.logger.remove()
    tracking.logger.level("INFO", color="<bold><green>")
    tracking.logger.add(
        printed,
        colorize=True,
        format="<green>{time:YYYY-MM-DD HH:mm:ss.SSS}</green> | <level>{level: <8}</level> | "
        "<cyan>{name}</cyan>:<cyan>{function}</cyan>:<cyan>{line}</cyan> - "
        "<level>{message}</level>",
    )
    console = tracking.Tracking("gsm8k", "run", backend="console")
    console.log({"eval/all/avg_score": 0.2266, "eval/all/pass_at_1": 0.2266}, step=0)
    board.log({"eval/all/avg_score": 0.2266, "eval/all/pass_at_1": 0.2266}, step=0)
    for step, row in enumerate(made, start=1):
        tracking.logger.info(f"Started: 'step' (global_step: {step})")
        console.log(row, step=step)
        board.log(row, step=step)
    board.finish()
    hide_host(folder)
    (folder / "console.log").write_text(ray(printed.getvalue(), "skyrl_entrypoint", 8120))

    names = {
        "loss": "policy/policy_loss",
        "grad_norm": "policy/grad_norm",
        "learning_rate": "policy/policy_lr",
        "step_time_s": "timing/step",
        "generation_time_s": "timing/generate",
        "tokens_per_sec_per_gpu": "trainer/tokens_per_second_per_gpu",
        "reward": "reward/avg_raw_reward",
        "kl": "policy/policy_kl",
        "entropy": "policy/policy_entropy",
        "clip_fraction": "policy/loss_metrics/clip_ratio",
        "completion_length": "generate/avg_num_tokens",
        "mismatch": "policy/rollout_train_logprobs_abs_diff_mean",
    }
    own = f"the framework's own writer skyrl {VERSION} (its module alone, without its package)"
    steps = list(range(1, STEPS + 1))
    outputs = [
        Output("tensorboard_log", "tensorboard", own, steps),
        Output("console.log", "console", own, steps),
    ]
    outputs[
        1
    ].note = (
        "one record is many lines, each with Ray's prefix; floats are quoted, with four decimals"
    )
    for ours, name in names.items():
        values = [float(row[name]) for row in made]  # type: ignore[arg-type]
        outputs[0].has(ours, name, values, written=single)
        outputs[1].has(ours, name, values, written=lambda value: float(f"{value:.4f}"))
    write_expected("skyrl", outputs)


if __name__ == "__main__":
    main()
