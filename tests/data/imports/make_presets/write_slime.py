"""slime: TensorBoard and the console, by the modules below `slime/observability` of a clone."""

from __future__ import annotations

import io
import logging
import os
import sys
from types import SimpleNamespace

from checkout import clone
from common import Output, around, falling, fresh, hide_host, ray, single, write_expected

ROLLOUTS, STEPS_EACH = 6, 2
STEPS = ROLLOUTS * STEPS_EACH
COMMIT = "624b824a898ab0ec1fcb4d373004c7f3852bf515"


def main() -> None:
    sys.path.insert(0, str(clone("slime")))
    from slime.observability import logging_utils

    folder = fresh("slime")
    os.chdir(folder)
    args = SimpleNamespace(
        use_wandb=False, use_tensorboard=True, tb_project_name="slime", tb_experiment_name="run"
    )
    printed = io.StringIO()
    logging_utils.configure_logger()
    handler = logging.getLogger().handlers[0]
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(printed)

    def told(path: str, line: int, message: str) -> None:
        logger = logging.getLogger(path)
        place = (f"slime/{path}", line, message, (), None)
        logger.handle(logger.makeRecord(logger.name, logging.INFO, *place))

    loss = falling("slime loss", STEPS, 0.04, 0.008, 0.2)
    norm = falling("slime norm", STEPS, 0.5, 0.2, 0.1)
    off = around("slime mismatch", STEPS, 0.0118, 0.05)
    reward = [1 - value for value in falling("slime reward", ROLLOUTS, 0.7, 0.4, 0.03)]
    length = around("slime length", ROLLOUTS, 1830.0, 0.05)
    wait = around("slime wait", ROLLOUTS, 52.0)
    train = around("slime train", ROLLOUTS, 31.0)
    train_rows, rollout_rows, perf_rows = [], [], []
    for rollout in range(ROLLOUTS):
        lengths = {
            "rollout/response_len/mean": length[rollout],
            "rollout/response_len/median": length[rollout] * 0.9,
            "rollout/response_len/max": 8192,
            "rollout/response_len/min": 61,
            "rollout/repetition_frac": 0.0,
            "rollout/truncated_ratio": 0.046875,
            "perf/rollout_time": wait[rollout] * 0.97,
            "perf/tokens_per_gpu_per_sec": 2411.2 * 52.0 / wait[rollout],
        }
        told("observability/rollout_metrics.py", 75, f"perf {rollout}: {lengths}")
        logging_utils.log(args, lengths | {"rollout/step": rollout}, step_key="rollout/step")
        row: dict[str, float] = {
            "rollout/response_lengths": length[rollout],
            "rollout/rewards": 1.2e-08,
            "rollout/truncated": 0.046875,
            "rollout/raw_reward": reward[rollout],
            "rollout/total_lengths": length[rollout] + 141.0,
            "rollout/log_probs": -0.291,
            "rollout/rollout_log_probs": -0.2912,
            "rollout/advantages": 2.1e-09,
        }
        told("observability/train_metric_utils.py", 135, f"rollout {rollout}: {row}")
        logging_utils.log(args, row | {"rollout/step": rollout}, step_key="rollout/step")
        rollout_rows.append(row | lengths)
        for part in range(STEPS_EACH):
            step = rollout * STEPS_EACH + part
            row = {
                "train/loss": loss[step],
                "train/pg_loss": loss[step],
                "train/entropy_loss": 0.42 - 0.005 * step,
                "train/pg_clipfrac": 0.0003 * part,
                "train/ppo_kl": 0.0001 * part,
                "train/train_rollout_logprob_abs_diff": off[step],
                "train/kl_loss": 0.0002 * step,
                "train/grad_norm": norm[step],
                "train/lr-pg_0": 1e-06,
                "train/lr-pg_1": 1e-06,
                "train/global_batch_size": 256,
                "train/step": step,
            }
            logging_utils.log(args, row, step_key="train/step")
            told("backends/megatron_utils/model.py", 918, f"step {step}: {row}")
            train_rows.append(row)
        row = {
            "perf/train_wait_time": wait[rollout],
            "perf/log_probs_time": 6.1,
            "perf/actor_train_time": train[rollout] * 0.7,
            "perf/train_time": train[rollout],
            "perf/actor_train_tflops": 212.5,
            "perf/actor_train_tok_per_s": 8123.4,
            "perf/step_time": wait[rollout] + train[rollout],
            "perf/wait_time_ratio": wait[rollout] / (wait[rollout] + train[rollout]),
        }
        told("observability/train_metric_utils.py", 401, f"perf {rollout}: {row}")
        logging_utils.log(args, row | {"rollout/step": rollout}, step_key="rollout/step")
        perf_rows.append(row)
        if rollout == 2:
            scores = {"eval/aime": 0.25, "eval/aime-truncated_ratio": 0.1}
            told("observability/rollout_metrics.py", 247, f"eval {rollout}: {scores}")
            logging_utils.log(args, scores | {"eval/step": rollout}, step_key="eval/step")
    logging_utils._TensorboardAdapter(args).finish()
    hide_host(folder)
    noise = ray(
        "INFO 08-22 10:00:00 Memory pool end. avail mem=12.41 GB\n"
        "Decode batch. #running-req: 31, #token: 41021, gen throughput (token/s): 2411.20",
        "SGLangEngine",
        5121,
    )
    lines = printed.getvalue().splitlines(keepends=True)
    log = [noise]
    for line in lines:
        rollout_side = "rollout_metrics.py" in line
        log.append(
            ray(
                line,
                "RolloutManager" if rollout_side else "MegatronTrainRayActor",
                4801 if rollout_side else 4977,
            )
        )
    (folder / "console.log").write_text("".join(log))

    own = f"the framework's own writer slime/observability, from THUDM/slime@{COMMIT}"
    steps = list(range(STEPS))
    board = Output("tensorboard_log", "tensorboard", own, steps)
    console = Output("console.log", "console", own, steps)
    for output, written in ((board, single), (console, float)):
        output.note = (
            "steps of train/* count optimizer steps; those of rollout/* and perf/* count rollouts, "
            f"of which each makes {STEPS_EACH} steps"
        )
        for rows, names in (
            (
                train_rows,
                {
                    "loss": "train/loss",
                    "grad_norm": "train/grad_norm",
                    "learning_rate": "train/lr-pg_0",
                    "kl": "train/kl_loss",
                    "entropy": "train/entropy_loss",
                    "clip_fraction": "train/pg_clipfrac",
                    "mismatch": "train/train_rollout_logprob_abs_diff",
                },
            ),
            (
                rollout_rows,
                {
                    "reward": "rollout/raw_reward",
                    "completion_length": "rollout/response_len/mean",
                    "generation_time_s": "perf/rollout_time",
                },
            ),
            (perf_rows, {"step_time_s": "perf/step_time"}),
        ):
            for ours, name in names.items():
                output.has(ours, name, [row[name] for row in rows], written=written)
    write_expected("slime", [board, console])


if __name__ == "__main__":
    main()
