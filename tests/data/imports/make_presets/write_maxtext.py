"""MaxText: metrics file, TensorBoard and the console by `MetricLogger` of its wheel (unpacked)."""

from __future__ import annotations

import datetime
import importlib.util
import io
import logging
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy
from common import Output, around, falling, fresh, hide_host, single, write_expected
from standins import stand_in
from tensorboardX import SummaryWriter

STEPS = 12
VERSION = "0.2.5"
TOKENS = 2048


def metric_logger() -> object:
    """The module alone, with the two of its package that format and log."""
    root = next(Path(entry) for entry in sys.path if Path(entry, "maxtext/common").exists())
    stand_in("maxtext")
    import maxtext.utils

    loaded = None
    for name in ("maxtext.utils.max_logging", "maxtext.common.metric_logger"):
        if name.endswith("metric_logger"):
            import maxtext.common.gcloud_stub as stub
            import maxtext.utils.elastic_utils as elastic
            import maxtext.utils.globals as constants
            import maxtext.utils.max_utils as utils

            stub.mldiagnostics_modules = lambda: (None, None)
            stub.workload_monitor = lambda: (None, True)
            elastic.elastic_enabled = lambda config: False
            constants.EPS = 1e-8
            utils.initialize_summary_writer = lambda folder, name, enabled: SummaryWriter(
                str(Path(folder, name))
            )
            utils.close_summary_writer = lambda writer: writer.close()
        spec = importlib.util.spec_from_file_location(name, root / (name.replace(".", "/") + ".py"))
        assert spec is not None
        assert spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[name] = loaded
        spec.loader.exec_module(loaded)
        maxtext.utils.max_logging = sys.modules["maxtext.utils.max_logging"]
    return loaded


def write(
    module: object, metrics_file: str, tensorboard: str, evaluate: bool
) -> dict[str, list[float]]:
    """One run of the training loop of `pre_train/train.py`, as far as it logs."""
    config = SimpleNamespace(
        tensorboard_dir=tensorboard,
        run_name="llama2-tiny",
        enable_tensorboard=True,
        gcs_metrics=False,
        managed_mldiagnostics=False,
        enable_wandb=False,
        metrics_file=metrics_file,
        rampup_end_step=0,
        hide_profiler_step_metric=False,
        profiler="",
        num_experts=1,
        mtp_num_layers=0,
        use_indexer=False,
        log_period=100,
        steps=STEPS,
        abort_on_nan_loss=False,
        abort_on_inf_loss=False,
        report_heartbeat_metric_for_gcp_monitoring=False,
        report_performance_metric_for_gcp_monitoring=False,
        target_eval_loss=0.0,
        log_step_diagnostics=False,
        mllog=False,
        enable_mllog=False,
    )
    rates = [numpy.float32(3e-4 * (index + 1) / STEPS) for index in range(STEPS)]
    logger = module.MetricLogger(config, lambda step: rates[step])  # type: ignore[attr-defined]
    keys = module.MetadataKey  # type: ignore[attr-defined]
    logger.metadata = {keys.PER_DEVICE_TFLOPS: 262.0, keys.PER_DEVICE_TOKENS: TOKENS}
    loss = falling("maxtext loss", STEPS, 10.87, 7.2, 0.004)
    norm = falling("maxtext norm", STEPS, 4.0, 1.1, 0.05)
    seconds = around("maxtext time", STEPS, 1.234)
    for step in range(STEPS):
        scalars = {
            "learning/loss": numpy.float32(loss[step]),
            "learning/lm_loss": numpy.float32(loss[step]),
            "learning/perplexity": numpy.exp(numpy.float32(loss[step])),
            "learning/z_loss": numpy.float32(0.0),
            "learning/moe_lb_loss": numpy.float32(0.0),
            "learning/indexer_loss": numpy.float32(0.0),
            "learning/mtp_loss": numpy.float32(0.0),
            "learning/total_weights": numpy.int32(TOKENS * 4),
            "learning/grad_norm": numpy.float32(min(norm[step], 1.0)),
            "learning/raw_grad_norm": numpy.float32(norm[step]),
            "learning/param_norm": numpy.float32(310.5),
        }
        spent = datetime.timedelta(seconds=seconds[step])
        logger.buffer_and_write_metrics({"scalar": scalars, "scalars": {}}, step, spent)
        if evaluate and step == 5:
            for checked in range(2):
                total = {"evaluation/total_loss": 80000.0, "evaluation/total_weights": 8192.0}
                logger.buffer_and_write_metrics(
                    {"scalar": total}, checked, datetime.timedelta(seconds=0.4), is_training=False
                )
    logger.flush_metrics_and_cleanup()
    return {
        "loss": [float(numpy.float32(value)) for value in loss],
        "grad_norm": [float(numpy.float32(min(value, 1.0))) for value in norm],
        "seconds": [datetime.timedelta(seconds=value).total_seconds() for value in seconds],
        "rates": [float(value) for value in rates],
    }


def main() -> None:
    module = metric_logger()
    folder = fresh("maxtext")
    os.chdir(folder)
    printed = io.StringIO()
    from absl import logging as absl

    handler = logging.StreamHandler(printed)
    handler.setFormatter(absl.PythonFormatter())
    absl.set_verbosity(absl.INFO)
    logging.getLogger("absl").addHandler(handler)
    logging.getLogger("absl").propagate = False
    made = write(module, "metrics.jsonl", "tensorboard", evaluate=False)
    text = printed.getvalue()
    write(module, "with_evaluation.jsonl", "dropped", evaluate=True)
    shutil.rmtree("dropped")
    hide_host(folder)
    (folder / "console.log").write_text(
        "W0822 10:00:00.000001 140000000000000 xla_bridge.py:1012] "
        "An NVIDIA GPU may be present on this machine\n" + text
    )
    own = f"the framework's own writer maxtext {VERSION} (its module alone, without its package)"
    steps = list(range(STEPS))
    rate = [TOKENS / value for value in made["seconds"]]
    lines = Output("metrics.jsonl", "jsonl", own, steps, note="the step is a float")
    board = Output("tensorboard/llama2-tiny", "tensorboard", own, steps)
    cut = Output("with_evaluation.jsonl", "jsonl", own, steps[6:])
    cut.note = (
        "an evaluation's first row has step 0, at which this writer empties the file: "
        "the rows of the steps before are gone. Two rows of running evaluation have steps 0 and 1"
    )
    for output, first, written in ((lines, 0, float), (board, 0, single), (cut, 6, float)):
        for ours, name, found in (
            ("loss", "learning/loss", made["loss"]),
            ("grad_norm", "learning/grad_norm", made["grad_norm"]),
            ("learning_rate", "learning/current_learning_rate", made["rates"]),
            ("step_time_s", "perf/step_time_seconds", made["seconds"]),
            ("tokens_per_sec_per_gpu", "perf/per_device_tokens_per_sec", rate),
        ):
            output.has(ours, name, found[first:], written=written)
    console = Output("console.log", "console", own, steps)
    for ours, name, found in (
        ("loss", "loss", made["loss"]),
        ("step_time_s", "seconds", made["seconds"]),
        ("tokens_per_sec_per_gpu", "Tokens/s/device", rate),
    ):
        console.has(ours, name, found, written=lambda value: float(f"{value:.3f}"))
    write_expected("maxtext", [lines, board, cut, console])


if __name__ == "__main__":
    main()
