"""ROLL: TensorBoard, the console and the state beside a checkpoint, by `roll.utils` of a clone."""

from __future__ import annotations

import io
import json
import logging
import os
import sys

from checkout import clone
from common import Output, around, falling, fresh, hide_host, ray, single, write_expected

STEPS = 10
COMMIT = "8eb27cc2dc34c4d1310b169d9b86d339004d811a"


def rows() -> list[dict[str, float]]:
    """The metrics of `RLVRPipeline.run`, one a step, with the tags of their reducers."""
    loss = falling("roll loss", STEPS, 0.05, 0.01, 0.2)
    norm = falling("roll norm", STEPS, 0.8, 0.3, 0.1)
    score = [1 - value for value in falling("roll score", STEPS, 0.7, 0.35, 0.03)]
    length = around("roll length", STEPS, 612.0, 0.05)
    step_time = around("roll step", STEPS, 38.0)
    made = []
    for index in range(STEPS):
        row: dict[str, float] = {"system/tps/tps": 4100.0 * 38.0 / step_time[index]}
        if index:
            row["time/step_total"] = step_time[index - 1]
        row |= {
            "time/step_model_update": 2.1,
            "time/step_generate": step_time[index] * 0.6,
            "token/response_length/mean": length[index],
            "token/response_length/max": 2048.0,
            "token/prompt_length/mean": 131.0,
            "token/total_response_length/clip": 0.0625,
            "critic/score/mean": score[index],
            "critic/rewards/mean": score[index] - 0.5,
            "critic/advantages/mean": 0.0001,
            "critic/entropy/mean": 0.4 - 0.008 * index,
            "actor/train_infer_diff_token_mean": 0.0002,
            "actor/train_infer_ratio_token_mean": 1.0003,
            "actor/ppo_ratio_clipfrac@sum": 0.0009 * index,
            "actor/pg_loss@sum": loss[index],
            "actor/kl_loss@sum": 0.0004 * index,
            "actor/total_loss@sum": loss[index] * 1.02,
            "actor/approxkl@sum": 0.0002 * index,
            "actor/lr": 1e-06,
            "actor_train/grad_norm": norm[index],
            "system/max_memory_allocated@max": 38.25,
            "time/step_train": step_time[index] * 0.3,
            "system/global_step": index,
        }
        made.append(row)
    return made


def main() -> None:
    folder = fresh("roll")
    os.chdir(folder)
    os.environ |= {"WORKER_NAME": "pipeline", "ROLL_LOG_DIR": "logs"}
    sys.path.insert(0, str(clone("roll")))
    from roll.utils import logging as roll_logging
    from roll.utils.tracking import StdoutTracker, TensorBoardTracker

    printed = io.StringIO()
    logger = roll_logging.get_logger()
    stream = logger.handlers[0]
    assert isinstance(stream, logging.StreamHandler)
    stream.setStream(printed)

    made = rows()
    board = TensorBoardTracker(
        {"exp_name": "rlvr", "seed": 42, "pretrain": "Qwen2.5-0.5B", "actor_train": {"lr": 1e-06}},
        log_dir="tensorboard/rlvr/20260822-100000",
    )
    console = StdoutTracker({})

    def told(message: str, line: int) -> None:
        place = ("roll/pipeline/rlvr/rlvr_pipeline.py", line, message, (), None)
        logger.handle(logger.makeRecord(logger.name, logging.INFO, *place))

    for step, row in enumerate(made):
        if step % 5 == 0:
            told(json.dumps({"val_correct/all/mean": 0.31 + 0.01 * step}), 877)
        board.log(row, step=step)
        console.log(row, step=step)
        told(json.dumps([{"prompt": "2 + 2? {x}", "response": "4"}]), 837)
        told(json.dumps(row), 838)
        told(f"pipeline step {step} finished", 840)
    told("pipeline complete!", 847)
    board.finish()
    for handler in list(logger.handlers):
        if isinstance(handler, logging.FileHandler):
            handler.close()
    for path in folder.joinpath("logs").iterdir():
        path.unlink()
    folder.joinpath("logs").rmdir()
    hide_host(folder)
    process = f"[PID {os.getpid()}]"
    text = printed.getvalue().replace(process, "[PID 3120]")
    (folder / "console.log").write_text(ray(text, "RLVRPipeline", 3120))
    state = {"step": STEPS - 1, "log_history": made, "kv": {}}
    (folder / "worker_state_pipeline.json").write_text(json.dumps(state))

    source = f"alibaba/ROLL@{COMMIT}"
    own = f"the framework's own writer roll/utils/tracking.py, from {source}"
    steps = list(range(STEPS))
    outputs = [
        Output(
            "tensorboard",
            "tensorboard",
            own,
            steps,
            note="the hyperparameters make a second "
            "event file without scalars, in a folder of its own",
        ),
        Output(
            "console.log",
            "console",
            own,
            steps,
            note="each step stands there twice: the "
            "tracker's line and the pipeline's own JSON line, whose names keep their tags",
        ),
        Output(
            "worker_state_pipeline.json",
            "json",
            f"exactly its form, from {source} roll/utils/worker_state.py",
            steps,
            note="names keep the tags of their reducers",
        ),
    ]
    for ours, name in {
        "loss": "actor/pg_loss@sum",
        "grad_norm": "actor_train/grad_norm",
        "learning_rate": "actor/lr",
        "step_time_s": "time/step_total",
        "generation_time_s": "time/step_generate",
        "tokens_per_sec": "system/tps/tps",
        "reward": "critic/score/mean",
        "kl": "actor/kl_loss@sum",
        "entropy": "critic/entropy/mean",
        "clip_fraction": "actor/ppo_ratio_clipfrac@sum",
        "completion_length": "token/response_length/mean",
        "mismatch": "actor/train_infer_diff_token_mean",
        "max_memory_bytes": "system/max_memory_allocated@max",
    }.items():
        values = [row[name] for row in made if name in row]
        scale = 1024.0**3 if ours == "max_memory_bytes" else 1.0
        clean = name.partition("@")[0]
        outputs[0].has(ours, clean, values, scale, single)
        outputs[1].has(ours, clean, values, scale)
        outputs[2].has(ours, name, values, scale)
    write_expected("roll", outputs)


if __name__ == "__main__":
    main()
