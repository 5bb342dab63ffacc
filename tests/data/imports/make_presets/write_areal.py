"""AReaL: TensorBoard and the console, by AReaL's own `StatsLogger` and `stats_tracker`."""

from __future__ import annotations

import io
import logging
from importlib.metadata import version
from types import SimpleNamespace

from common import Output, around, falling, fresh, hide_host, single, write_expected
from standins import stand_in

stand_in("lark", "ray", "numba", "einops", "openai")

import torch
from areal.utils import stats_logger
from areal.utils.stats_tracker import DistributedStatsTracker
from tensorboardX import SummaryWriter

STEPS = 8
COMMIT = "cbff54d645d2cd8ee1f1c358a82f3f473588433d"


def stats(step: int) -> dict[str, float]:
    """One step's statistics, recorded as `ppo/actor.py` and `rl_trainer.py` record them."""
    torch.manual_seed(step)
    tracker = DistributedStatsTracker()
    mask = torch.rand(8, 32) < 0.8
    ones = torch.ones(8, dtype=torch.bool)
    right = (torch.rand(8) < 0.2 + 0.05 * step).float()
    with tracker.scope("ppo_actor"):
        tracker.denominator(n_seqs=ones, n_valid_tokens=mask)
        tracker.stat(
            kl_rewards=-0.0002 * step * torch.ones(8, 32),
            denominator="n_valid_tokens",
        )
        tracker.stat(
            task_reward=right,
            seq_len=(mask.sum(1) * 16).float(),
            denominator="n_seqs",
        )
        with tracker.scope("update"):
            for part in range(2):
                tracker.denominator(n_valid_tokens=mask)
                clipped = (torch.rand(8, 32) < 0.001 * step).float()
                difference = 0.01 * torch.randn(8, 32)
                tracker.stat(
                    entropy=(0.5 - 0.01 * step) + 0.1 * torch.rand(8, 32),
                    actor_loss=0.05 / (1 + step) + 0.01 * torch.randn(8, 32),
                    clip_ratio=clipped,
                    logp_abs_diff=difference.abs(),
                    denominator="n_valid_tokens",
                )
                tracker.scalar(
                    update_successful=1.0,
                    grad_norm=falling("areal norm", STEPS, 0.8, 0.3, 0.1)[step] * (1 + 0.01 * part),
                    lr=1.7e-05,
                )
    with tracker.scope("rollout"):
        tracker.scalar(reward=right.mean().item())
    seconds = around("areal step", STEPS, 12.3)[step]
    with tracker.scope("timeperf"):
        tracker.scalar(rollout=seconds * 2.1, train_step=seconds, update_weights=1.9)
    return tracker.export(reduce_group=None)


def main() -> None:
    folder = fresh("areal")
    made = [stats(step) for step in range(STEPS)]
    writer = stats_logger.StatsLogger.__new__(stats_logger.StatsLogger)
    writer.ft_spec = SimpleNamespace(total_train_epochs=2, steps_per_epoch=4, total_train_steps=8)
    writer._last_commit_step = -1
    writer._trackio_enabled = False
    writer.summary_writer = SummaryWriter(log_dir=str(folder / "tensorboard"))
    silent = SimpleNamespace(log=lambda item, step: None)
    stats_logger.wandb = stats_logger.swanlab = silent
    printed = io.StringIO()
    for handler in stats_logger.logger.handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(printed)
    for step, row in enumerate(made):
        writer.commit(step // 4, step % 4, step, row)
    writer.summary_writer.close()
    hide_host(folder)
    noise = (
        "\x1b[1;38;2;180;140;80m(AReaL)\x1b[0m \x1b[37m20260822-10:00:00.001 LocalScheduler INFO: "
        "Starting worker 3/4 │ ready │\x1b[0m\n"
        "\rLoading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.20s/it]\n"
    )
    (folder / "console.log").write_text(noise + printed.getvalue())

    own = f"the framework's own writer areal {version('areal')}; names as in "
    own += f"areal-project/AReaL@{COMMIT} areal/trainer/ppo/actor.py"
    outputs = [
        Output("tensorboard", "tensorboard", own, list(range(STEPS))),
        Output("console.log", "console", own, list(range(1, STEPS + 1))),
    ]
    outputs[0].note = "steps from 0"
    outputs[1].note = "the header line counts steps from 1; values have four decimals"
    for ours, name in {
        "loss": "ppo_actor/update/actor_loss/avg",
        "grad_norm": "ppo_actor/update/grad_norm",
        "learning_rate": "ppo_actor/update/lr",
        "train_time_s": "timeperf/train_step",
        "generation_time_s": "timeperf/rollout",
        "reward": "ppo_actor/task_reward/avg",
        "kl": "ppo_actor/kl_rewards/avg",
        "entropy": "ppo_actor/update/entropy/avg",
        "clip_fraction": "ppo_actor/update/clip_ratio/avg",
        "mismatch": "ppo_actor/update/logp_abs_diff/avg",
        "mismatch_max": "ppo_actor/update/logp_abs_diff/max",
    }.items():
        values = [row[name] for row in made]
        outputs[0].has(ours, name, values, written=single)
        outputs[1].has(ours, name, values, written=lambda value: float(f"{value:.4e}"))
    write_expected("areal", outputs)


if __name__ == "__main__":
    main()
