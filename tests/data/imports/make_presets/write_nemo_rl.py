"""NeMo-RL: TensorBoard and its JSON dump, by `nemo_rl.utils.logger` and `tests/` of a clone.

The console is in the form of `nemo_rl/algorithms/grpo.py`.
"""

from __future__ import annotations

import contextlib
import io
import sys
import threading

from checkout import clone, module
from common import GIB, Output, around, falling, fresh, hide_host, ray, single, write_expected
from standins import stand_in

STEPS = 8
GPUS = 8
COMMIT = "7ea279abfbeb698b092856d0dab61e7cf39bc909"


def main() -> None:
    stand_in("ray")
    sys.path.insert(0, str(clone("nemo-rl")))
    from nemo_rl.utils.logger import RayGpuMonitorLogger, TensorboardLogger

    folder = fresh("nemo-rl")
    loss = falling("nemo loss", STEPS, 0.03, 0.006, 0.2)
    norm = falling("nemo norm", STEPS, 0.6, 0.25, 0.1)
    reward = [1 - value for value in falling("nemo reward", STEPS, 0.75, 0.4, 0.03)]
    length = around("nemo length", STEPS, 540.0, 0.05)
    error = around("nemo error", STEPS, 1.012, 0.001)
    step_time = around("nemo step", STEPS, 46.0)
    tokens = [int(512 * (value + 130)) for value in length]
    rows: list[dict[str, float]] = []
    memory: list[float] = []
    with contextlib.redirect_stdout(io.StringIO()):
        board = TensorboardLogger({}, log_dir=str(folder / "tensorboard"))
    board.log_metrics({"accuracy": 0.21, "avg_length": 512.5}, 0, prefix="validation")
    board.log_metrics({"total_validation_time": 31.1}, 0, prefix="timing/validation")
    monitor = RayGpuMonitorLogger.__new__(RayGpuMonitorLogger)
    monitor.metrics_buffer, monitor.lock, monitor.parent_logger = [], threading.Lock(), board
    monitor.metric_prefix, monitor.step_metric = "ray", "ray/ray_step"
    printed = []
    begun = 0.0
    for step in range(1, STEPS + 1):
        index = step - 1
        seconds = step_time[index]
        metrics = {
            "loss": loss[index],
            "grad_norm": norm[index],
            "lr": 5e-06,
            "wd": 0.01,
            "reward": reward[index],
            "probs_ratio": 1.0002,
            "probs_ratio_clamped": 1.0001,
            "kl_penalty": 0.0003 * index,
            "token_mult_prob_error": error[index],
            "gen_kl_error": 0.0007,
            "sampling_importance_ratio": 1.0004,
            "approx_entropy": 0.46 - 0.01 * index,
            "mean_prompt_length": 130.0,
            "mean_gen_tokens_per_sample": length[index],
            "truncation_rate": 0.021,
            "global_valid_toks": tokens[index] - 512 * 130,
            "total_num_tokens": tokens[index],
        }
        timing = {
            "total_step_time": seconds,
            "generation": seconds * 0.55,
            "policy_training": seconds * 0.25,
            "policy_and_reference_logprobs": seconds * 0.12,
            "data_processing": 0.21,
        }
        printed.append(
            f"\n{'=' * 25} Step {step}/{STEPS} {'=' * 25}\n▶ Preparing batch...\n"
            "▶ Generating responses for batch of size 512...\n▶ Training policy...\n"
            f"\n📊 Training Results:\n  • Loss: {metrics['loss']:.4f}\n"
            f"  • Generation KL Error: {metrics['gen_kl_error']:.4f}\n"
            f"  • Avg Reward: {metrics['reward']:.4f}\n"
            f"  • Mean Generation Length: {metrics['mean_gen_tokens_per_sample']:.4f}\n"
            f"\n⏱️  Timing:\n  • Total step time: {seconds:.2f}s\n"
            + "".join(
                f"  • {part}: {spent:.2f}s ({spent / seconds * 100:.1f}%)\n"
                for part, spent in sorted(timing.items(), key=lambda item: -item[1])
                if part != "total_step_time"
            )
            + f"\n🔍 Performance Metrics:\n"
            f"  • Throughputs (per GPU):\n"
            f"    - E2E (Tokens/sec/gpu): {tokens[index] / seconds / GPUS:.2f}\n"
            f"  • Throughputs (per Group):\n    - E2E (Tokens/sec): {tokens[index] / seconds:.2f}\n"
        )
        timing["valid_tokens_per_sec_per_gpu"] = metrics["global_valid_toks"] / seconds / GPUS
        performance = {
            "samples_per_sec": 512 / seconds,
            "tokens_per_sec": tokens[index] / seconds,
            "tokens_per_sec_per_gpu": tokens[index] / seconds / GPUS,
            "generation_tokens_per_sec_per_gpu": tokens[index] / timing["generation"] / GPUS,
            "train_flops_per_gpu": 212.5,
        }
        board.log_metrics(metrics, step, prefix="train")
        board.log_metrics(performance, step, prefix="performance")
        board.log_metrics(timing, step, prefix="timing/train", step_finished=True)
        rows.append(
            {f"train/{name}": value for name, value in metrics.items()}
            | {f"performance/{name}": value for name, value in performance.items()}
            | {f"timing/train/{name}": value for name, value in timing.items()}
        )
        begun += seconds
        used = 61440.0 + 512.0 * (step > 2)
        memory.append(used / 1024)
        monitor.metrics_buffer.append(
            {"step": int(begun), "metrics": {"node.0.gpu.0.mem_gb": used / 1024}}
        )
        if step == 4:
            board.log_metrics({"accuracy": 0.29, "avg_length": 530.5}, step, prefix="validation")
            monitor.flush()
    monitor.flush()
    board.writer.close()
    hide_host(folder)
    dump = module("nemo-rl", "tests/json_dump_tb_logs.py", "json_dump_tb_logs")
    with contextlib.redirect_stdout(io.StringIO()):
        dump.console = dump.Console(file=io.StringIO())
        dump.merge_tb_logs_to_json(str(folder / "tensorboard"), str(folder / "metrics.json"))
    noise = ray("INFO 08-22 10:00:00 [core.py:69] Initializing a V1 LLM engine", "VllmWorker", 771)
    warning = "/opt/nemo_rl/grpo.py:2101: UserWarning: Step: 3 of the warmup • none\n"
    (folder / "console.log").write_text(noise + warning + "".join(printed))

    source = f"NVIDIA-NeMo/RL@{COMMIT}"
    own = f"the framework's own writer nemo_rl/utils/logger.py, from {source}"
    steps = list(range(1, STEPS + 1))
    outputs = [
        Output("tensorboard", "tensorboard", own, steps),
        Output(
            "metrics.json",
            "json",
            f"the framework's own writer tests/json_dump_tb_logs.py, from {source}",
            steps,
        ),
        Output(
            "console.log",
            "console",
            f"exactly its form, from {source} nemo_rl/algorithms/grpo.py",
            steps,
        ),
    ]
    note = "validation also at step 0; the steps of ray/* are seconds since the start"
    outputs[0].note = outputs[1].note = note
    outputs[2].note = "the step stands in a header line, the metrics in lines below it"
    names = {
        "loss": "train/loss",
        "grad_norm": "train/grad_norm",
        "learning_rate": "train/lr",
        "step_time_s": "timing/train/total_step_time",
        "generation_time_s": "timing/train/generation",
        "tokens_per_sec": "performance/tokens_per_sec",
        "tokens_per_sec_per_gpu": "performance/tokens_per_sec_per_gpu",
        "reward": "train/reward",
        "kl": "train/kl_penalty",
        "entropy": "train/approx_entropy",
        "completion_length": "train/mean_gen_tokens_per_sample",
        "mismatch": "train/token_mult_prob_error",
    }
    for output in outputs[:2]:
        for ours, name in names.items():
            output.has(ours, name, [row[name] for row in rows], written=single)
        output.has("device_memory_bytes", "ray/node.0.gpu.0.mem_gb", memory, GIB, single)
    for ours, name, key, digits in (
        ("loss", "Loss", "train/loss", 4),
        ("mismatch_kl", "Generation KL Error", "train/gen_kl_error", 4),
        ("reward", "Avg Reward", "train/reward", 4),
        ("completion_length", "Mean Generation Length", "train/mean_gen_tokens_per_sample", 4),
        ("step_time_s", "Total step time", "timing/train/total_step_time", 2),
    ):
        outputs[2].has(
            ours,
            name,
            [row[key] for row in rows],
            written=lambda value, digits=digits: float(f"{value:.{digits}f}"),
        )
    write_expected("nemo-rl", outputs)


if __name__ == "__main__":
    main()
