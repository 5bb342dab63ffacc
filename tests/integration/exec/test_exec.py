"""`canary exec`: a user's own training command is watched, and nothing of it changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from canary.inputs.embedded import tiny_dir
from canary.record.jsonio import read_rows
from tests.integration.exec.user_scripts import PYTHON, Ended, bare, sft_script, watched, write_data

pytestmark = [pytest.mark.train, pytest.mark.slow]


def untimed(text: str) -> list[str]:
    """The lines of standard output that another run repeats."""
    return [line for line in text.splitlines() if "train_runtime" not in line]


@pytest.fixture(scope="module")
def alone(place: Path) -> Ended:
    return bare(place, PYTHON, "train.py")


@pytest.fixture(scope="module")
def whole(place: Path) -> Ended:
    """The script watched to its end."""
    return watched(place, PYTHON, "train.py", options=("--name", "own"))


def test_losses_weights_and_output_are_those_of_the_command_alone(
    alone: Ended, whole: Ended
) -> None:
    assert (alone.code, whole.code) == (0, 0), whole.err
    for word in ("losses", "rates", "saved"):
        assert whole.line(word) == alone.line(word)

    assert untimed(whole.out) == untimed(alone.out)


@pytest.mark.end_to_end
def test_the_record_is_complete(whole: Ended) -> None:
    assert "\n  rules       Nothing wrong was found: " in whole.err
    assert "\nnext: change something, run it again" in whole.err
    record = whole.record()
    assert record.status == "completed"
    assert [launch.look_steps for launch in record.launches] == [2]
    losses = json.loads(whole.line("losses").removeprefix("losses "))
    assert record.stability.loss_values == pytest.approx(losses, rel=1e-6)
    assert set(record.exact) >= {
        "data", "batches", "model", "first_loss", "first_gradient", "first_update",
        "trajectory", "work", "memory", "calls", "frozen",
    }  # fmt: skip
    assert record.exact["data"]["tokenizer"]["vocab_sha256"]
    assert record.config["training_type"] == "sft"
    assert record.config["learning_rate"] == 5e-4
    assert record.config["gradient_accumulation_steps"] == 2
    assert record.config["trainer_args"]["optim"].startswith("adamw")
    assert not {"dataset_name", "fixed_length", "load_in_4bit", "speed"} & set(record.config)
    assert record.tokens["label_tokens"] > 0
    assert record.perf.step_time.count == 4
    assert record.env["packages"]["trl"]
    assert "pytest" not in record.env["packages"], "the training does not import it"
    assert record.env["device"]["threads"] == 1  # by the environment: the config names none
    assert whole.folder is not None
    for row in read_rows(whole.folder / "steps.jsonl"):
        assert sum(row["phases"].values()) == pytest.approx(row["wall_s"], rel=1e-6)
        assert {"data", "forward", "backward", "optimizer"} <= set(row["phases"])
    assert "train_runtime" in (whole.folder / "log.txt").read_text()


def test_a_training_cut_short_ends_its_process_and_leaves_older_results_alone(
    tmp_path: Path,
) -> None:
    """Standard input reaches it, and the schedule keeps its length."""
    write_data(tmp_path)
    more = '{"save_strategy": "steps", "save_steps": 3, "save_total_limit": 1}'
    reads = "print('read', sys.stdin.read())"
    after = "import torch; torch.save(trainer.state.global_step, 'final.pt')"
    rate = (
        "class Says(TrainerCallback):\n"
        "    def on_log(self, args, state, control, logs=None, **kwargs):\n"
        "        if 'loss' in logs: print('step', logs['loss'], logs['learning_rate'])\n"
        "trainer.add_callback(Says())\n"
    )
    sft_script(tmp_path, more=more, before=reads + "\n" + rate, after=after)
    alone = bare(tmp_path, PYTHON, "train.py", given="hello")
    assert alone.code == 0, alone.err
    files = [*(tmp_path / "out" / "checkpoint-6").rglob("*"), tmp_path / "final.pt"]
    before = {path: path.read_bytes() for path in files if path.is_file()}
    options = ("--name", "cut", "--max-steps", "4")
    cut = watched(tmp_path, PYTHON, "train.py", options=options, given="hello")
    assert cut.code == 0, cut.err
    whole, steps = (
        [line for line in side.out.splitlines() if line.startswith("step")] for side in (alone, cut)
    )
    # Equal from the first on: the learning rate still falls towards the whole training's end.
    assert steps == whole[:4]
    assert "read hello" in cut.out
    assert "losses" not in cut.out, "what comes after the training does not run"
    assert {path: path.read_bytes() for path in before} == before
    record = cut.record()
    assert record.status == "completed"
    assert len(record.stability.loss_values) == 4
    assert "the canary ended the process after step 4" in record.notes
    assert "ended after step 4; what comes after the training does not run" in cut.err


def test_under_a_limit_no_second_training_runs(tmp_path: Path) -> None:
    write_data(tmp_path)
    sft_script(tmp_path, steps=4, after="trainer.train(); print('a later one')")
    done = watched(tmp_path, PYTHON, "train.py", options=("--name", "cut", "--max-steps", "4"))
    assert done.code == 0, done.err
    assert "losses" in done.out
    assert "a later one" not in done.out
    assert "one training was recorded; the next one does not run" in done.err
    assert (done.record().status, len(done.record().stability.loss_values)) == ("completed", 4)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            (
                *("-m", "trl.scripts.grpo", "--dataset_name", "data_grpo"),
                *("--num_generations", "2", "--max_completion_length", "8"),
                *("--reward_funcs", "think_format_reward"),
            ),
            "grpo",
        ),
        (("TRL", "sft", "--dataset_name", "data_sft"), "sft"),
    ],
    ids=["grpo", "trl sft"],
)
def test_scripts_that_ship_with_trl_are_watched_unmodified(
    tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    write_data(tmp_path)
    trl = str(Path(PYTHON).parent / "trl")
    start = (trl, *words[1:]) if words[0] == "TRL" else (PYTHON, *words)
    arguments = (
        "--model_name_or_path", str(tiny_dir()), "--output_dir", "out", "--max_steps", "4",
        "--per_device_train_batch_size", "2", "--report_to", "none", "--use_cpu", "--bf16",
        "false", "--logging_steps", "1", "--disable_tqdm", "true", "--save_strategy", "no",
    )  # fmt: skip
    left = bare(tmp_path, *start, *arguments)
    assert left.code == 0, left.err
    weights = (tmp_path / "out" / "model.safetensors").read_bytes()
    (tmp_path / "out" / "model.safetensors").unlink()
    right = watched(tmp_path, *start, *arguments, options=("--name", told))
    assert right.code == 0, right.err
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == weights
    record = right.record()
    assert record.config["training_type"] == told
    assert record.exact["steps"] == 1
    assert len(record.stability.loss_values) == 4
    assert record.exact["work"]["operator_total"] > 0
    if told == "grpo":
        assert record.phases["generation"] > 0
        assert record.phases["reward"] > 0
        assert record.rl["reward"].count > 0
