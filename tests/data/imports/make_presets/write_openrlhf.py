"""OpenRLHF: TensorBoard and the console of a PPO run, by its own `logging_utils`."""

from __future__ import annotations

import contextlib
import io
import logging
from importlib.metadata import version
from types import SimpleNamespace

from common import (
    Output,
    around,
    bar,
    falling,
    fresh,
    hide_host,
    ray,
    single,
    write_expected,
)

STEPS = 10


def statuses() -> list[dict[str, object]]:
    """`status` of `PPOTrainer.fit`, one a step, in the trainer's order."""
    loss = falling("openrlhf loss", STEPS, 0.03, 0.004, 0.3)
    norm = falling("openrlhf norm", STEPS, 1.4, 0.6, 0.08)
    reward = [1 - value for value in falling("openrlhf reward", STEPS, 0.75, 0.4, 0.03)]
    length = around("openrlhf length", STEPS, 212.0)
    parts = [around(f"openrlhf time {part}", STEPS, part, 0.04) for part in (18.2, 4.1, 31.5, 2.2)]
    made = []
    for index in range(STEPS):
        making, training, generating, sending = (part[index] for part in parts)
        status: dict[str, object] = {
            "rollout/reward_mean": reward[index],
            "rollout/reward_std": 0.49,
            "rollout/response_length_mean": length[index],
            "rollout/truncated_rate": 0.03125,
            "policy_loss": loss[index],
            "ppo_clip_ratio": 0.0004 * index,
            "ppo_kl": 0.0001 * index,
            "vllm_kl": 0.0011 + 0.0001 * index,
            "entropy_loss": 0.6 - 0.01 * index,
            "actor_lr": 5e-07,
            "actor_grad_norm": norm[index],
            "reward": reward[index] * 0.99,
            "group_reward_std": 0.31,
            "return": reward[index] * 0.9,
            "kl": 0.0002 * index,
            "response_length": length[index] * 1.01,
            "total_length": length[index] * 1.01 + 96.0,
            "response_clip_ratio": 0.03125,
            "timing/make_experience": making,
            "timing/ppo_train": training,
            "timing/broadcast": sending,
            "timing/generation": generating,
        }
        status["timing/step_total"] = making + training + sending + generating
        status["generated_samples"] = ["Question: 2 + 2?\nAnswer: 4", reward[index]]
        made.append(status)
    return made


def main() -> None:
    from openrlhf.utils import logging_utils

    folder = fresh("openrlhf")
    made = statuses()
    args = SimpleNamespace(
        logger=SimpleNamespace(
            tensorboard_dir=str(folder / "tensorboard"),
            wandb=SimpleNamespace(run_name="ppo_0822T10"),
        )
    )
    board = logging_utils.TensorboardLogger(args)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        logging_utils._default_handler.setStream(printed)
        logger = logging_utils.init_logger("openrlhf.trainer.ppo_trainer")
        progress = []

        def told(message: str, line: int) -> None:
            place = ("openrlhf/trainer/ppo_trainer.py", line, message, (), None)
            logger.handle(logger.makeRecord(logger.name, logging.INFO, *place))

        for step, status in enumerate(made, start=1):
            shown = {key: value for key, value in status.items() if key != "generated_samples"}
            told(f"✨ Global step {step}: {shown}", 547)
            board.log_train(step, status)
            if step == 5:
                scores = {"eval_gsm8k_pass4": 0.71, "eval_gsm8k_pass1": 0.52}
                told("⏰ Evaluation start time: 2026-08-22 10:05:10", 581)
                board.log_eval(step, scores)
                told(
                    f"✨ Evaluation completed in 0:01:23, global_step 5, eval_metrics: {scores}",
                    594,
                )
            progress.append(len(printed.getvalue()))
    board.close()
    hide_host(folder)

    text, begun, log = printed.getvalue(), 0, []
    log.append(
        ray(
            "INFO 08-22 10:00:00 [__init__.py:239] Automatically detected platform cuda.",
            "LLMRayActor",
            2207,
        )
    )
    for step, end in enumerate(progress):
        log.append(bar("Episode [1/1]", step * 16, STEPS * 16, 56.0 * step) + "\n")
        log.append(ray(text[begun:end], "PPOTrainer", 1989))
        begun = end
    (folder / "console.log").write_text("".join(log))

    names = {
        "loss": "policy_loss",
        "grad_norm": "actor_grad_norm",
        "learning_rate": "actor_lr",
        "step_time_s": "timing/step_total",
        "generation_time_s": "timing/generation",
        "reward": "rollout/reward_mean",
        "kl": "kl",
        "entropy": "entropy_loss",
        "clip_fraction": "ppo_clip_ratio",
        "completion_length": "rollout/response_length_mean",
        "mismatch_kl": "vllm_kl",
    }
    own = f"the framework's own writer openrlhf {version('openrlhf')}"
    steps = list(range(1, STEPS + 1))
    board_output = Output("tensorboard", "tensorboard", own, steps)
    console = Output("console.log", "console", own, steps)
    console.note = "the console has no prefix train/ before the names"
    for ours, name in names.items():
        values = [float(status[name]) for status in made]  # type: ignore[arg-type]
        board_output.has(ours, f"train/{name}", values, written=single)
        console.has(ours, name, values)
    write_expected("openrlhf", [board_output, console])


if __name__ == "__main__":
    main()
