"""torchtitan: TensorBoard and the console, by its own `MetricsProcessor`, without a device."""

from __future__ import annotations

import io
import logging
import os
import sys
from importlib.metadata import version
from types import SimpleNamespace

from common import GIB, Output, around, falling, fresh, hide_host, single, write_expected

STEPS = 12
TOKENS = 16384


class Device:
    """Memory of a device that this machine does not have, in the shape of its real monitor."""

    device_name = "NVIDIA H100 80GB HBM3"
    device_capacity_gib = 79.11

    def __init__(self) -> None:
        self.calls = 0

    def get_peak_stats(self) -> object:
        from torchtitan.components.metrics import DeviceMemStats

        self.calls += 1
        active = 11.5 if self.calls == 1 else 12.125
        return DeviceMemStats(active, active / 0.7911, 12.34375, 12.34375 / 0.7911, 0, 0)

    def reset_peak_stats(self) -> None:
        pass


def main() -> None:
    from torchtitan.components import metrics
    from torchtitan.tools import logging as titan_logging

    folder = fresh("torchtitan")
    os.chdir(folder)
    printed = io.StringIO()
    titan_logging.init_logger()
    for handler in logging.getLogger().handlers:
        assert isinstance(handler, logging.StreamHandler)
        handler.setStream(printed)
    metrics.build_device_memory_monitor = Device
    metrics.torch.distributed.get_rank = lambda: 0
    clock = SimpleNamespace(now=100.0)
    metrics.time = SimpleNamespace(perf_counter=lambda: clock.now)
    processor = metrics.MetricsProcessor(
        metrics.MetricsProcessor.Config(log_freq=1, enable_tensorboard=True),
        parallel_dims=SimpleNamespace(pp_enabled=False, non_data_parallel_size=1),
        dump_folder="outputs",
    )
    processor.num_flops_per_token = 48_000_000_000
    loss = falling("titan loss", STEPS, 8.1, 5.2, 0.005)
    norm = falling("titan norm", STEPS, 6.0, 1.4, 0.05)
    seconds = around("titan step", STEPS, 1.9)
    logger = logging.getLogger()
    logger.info("Training starts at step 1")
    for index in range(STEPS):
        clock.now += seconds[index]
        processor.ntokens_since_last_log = TOKENS
        processor.data_loading_times.append(0.004)
        processor.log(
            index + 1,
            loss[index],
            loss[index] * 1.02,
            norm[index],
            extra_metrics={
                "n_tokens_seen": TOKENS * 8 * (index + 1),
                "lr/AdamW": 3e-4 / (1 + index),
            },
        )
        if index == 5:
            clock.now += 0.4
            processor.ntokens_since_last_log = 4096
            processor.log_validation(5.4321, step=index + 1)
            logger.info("Saving the checkpoint (or staging if async is enabled).")
            logger.warning("step: 6 loss: took 4.2 seconds to save")
    processor.close()
    hide_host(folder)
    taken = next((folder / "outputs/tb").iterdir())
    taken.rename(taken.with_name("20260822-1000"))
    torchrun = "".join(f"[rank0]:{line}\n" for line in printed.getvalue().splitlines())
    (folder / "console.log").write_text(torchrun)

    own = f"the framework's own writer torchtitan {version('torchtitan')}"
    steps = list(range(1, STEPS + 1))
    board = Output("outputs/tb/20260822-1000", "tensorboard", own, steps)
    console = Output("console.log", "console", own, steps)
    console.note = "coloured, with torchrun's prefix; the memory is the reserved one"
    rate = [TOKENS / value for value in seconds]
    for output in (board, console):
        output.has("max_memory_reserved_bytes", "memory/max_reserved(GiB)", [12.34375] * STEPS, GIB)
    board.has("loss", "loss_metrics/global_avg_loss", loss, written=single)
    board.has("grad_norm", "grad_norm", norm, written=single)
    board.has(
        "learning_rate", "lr/AdamW", [3e-4 / (1 + index) for index in range(STEPS)], written=single
    )
    board.has("step_time_s", "time_metrics/end_to_end(s)", seconds, written=single)
    board.has("tokens_per_sec_per_gpu", "throughput(tps)", rate, written=single)
    board.has("max_memory_bytes", "memory/max_active(GiB)", [11.5] + [12.125] * (STEPS - 1), GIB)
    console.has("loss", "loss", loss, written=lambda value: float(f"{value:.5f}"))
    console.has("grad_norm", "grad_norm", norm, written=lambda value: float(f"{value:.4f}"))
    console.has("tokens_per_sec_per_gpu", "tps", rate, written=round)
    console.metrics["max_memory_reserved_bytes"] |= {
        "name": "memory",
        "first": 12.34 * GIB,
        "last": 12.34 * GIB,
    }
    write_expected("torchtitan", [board, console])


if __name__ == "__main__":
    sys.exit(main())
