"""After `canary exec` every file is what the bare command leaves, and the probe told all."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.integration.exec.user_scripts import PYTHON, Ended, bare, watched

pytestmark = [pytest.mark.train, pytest.mark.slow]

STEPS, PROBED = 6, 2

BEGIN = """
import json, os, pickle, shutil, sys
from pathlib import Path
import numpy, torch
from safetensors.torch import save_file
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)

    def forward(self, x, labels):
        found = self.linear(x)
        return {"loss": ((found - labels) ** 2).mean(), "logits": found}


torch.manual_seed(3)
rows = [{"x": torch.randn(4), "labels": torch.randn(1)} for _ in range(64)]
model = Model()
settings = dict(
    output_dir="out", max_steps=STEPS, per_device_train_batch_size=4, learning_rate=1e-2, seed=7,
    logging_steps=1, report_to="none", use_cpu=True, disable_tqdm=True, save_strategy="no",
)
"""
END = """
trainer = Trainer(model=model, args=TrainingArguments(**settings), train_dataset=rows)
for callback in callbacks:
    trainer.add_callback(callback)
trainer.train(resume_from_checkpoint=newest)
print("steps", trainer.state.global_step)
torch.save(model.state_dict(), "final.pt")
"""

WRITES = """
shutil.rmtree("scratch", ignore_errors=True)
os.mkdir("scratch")
if os.path.exists("train.log"):
    os.replace("train.log", "train.log.1")
log = open("train.log", "w")
log.write("begins\\n"); log.flush()


class Saves(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        step, weights = state.global_step, model.state_dict()
        os.makedirs("best", exist_ok=True)
        torch.save(weights, "best/model.pt")
        assert torch.load("best/model.pt").keys() == weights.keys()
        save_file(weights, "best/model.safetensors")
        numpy.save("best/bias.npy", weights["linear.bias"].numpy())
        pickle.dump(step, open("best/step.pkl", "wb"))
        json.dump(step, open("best/state.tmp", "w"))
        os.replace("best/state.tmp", "best/state.json")
        open("ledger.txt", "a").write(f"{step}\\n")
        os.makedirs(f"out/step-{step}", exist_ok=True)
        shutil.rmtree(f"out/step-{step - 2}", ignore_errors=True)
        if os.path.lexists("latest"):
            os.remove("latest")
        os.symlink(f"out/step-{step}", "latest")
        trainer.accelerator.save_state("state")
        open(f"scratch/{step}", "x").close()
        log.write(f"{step}\\n"); log.flush()


callbacks, newest = [Saves()], None
"""

RESUMES = """
settings |= {"save_strategy": "steps", "save_steps": 1, "save_total_limit": 2}
settings |= {"max_steps": int(sys.argv[1])}
callbacks, newest = [], get_last_checkpoint("out") if Path("out").is_dir() else None
"""


def script(folder: Path, body: str, end: str = "") -> None:
    folder.mkdir(exist_ok=True)
    text = (BEGIN + body + END).replace("STEPS", str(STEPS)) + end
    (folder / "train.py").write_text(text)
    (folder / "limits.yaml").write_text(f"probe_steps: {PROBED}\n")


def tree(folder: Path) -> dict[str, tuple[str, str]]:
    """Of each file its mode and its content; what differs from run to run by itself is left out."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        # The arguments that are pickled hold a folder named after the time.
        if name.split("/")[0] == "runs" or path.name == "training_args.bin":
            continue
        content = "folder"
        if path.is_symlink():
            content = str(path.readlink())
        elif path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        found[name] = (oct(path.lstat().st_mode), content)
    return found


def probed(folder: Path, *words: str) -> Ended:
    options = ("--name", "own", "--config", str(folder / "limits.yaml"))
    return watched(folder, *words, options=options)


def assert_exact(done: Ended) -> None:
    record = done.record()
    assert record.exact.get("steps") == PROBED, (record.notes, done.err)
    assert record.exact["trajectory"]["losses"] == pytest.approx(
        record.stability.loss_values[:PROBED], rel=1e-5
    )
    assert done.folder is not None
    assert not (done.folder / "set-aside").exists()


def test_whatever_a_script_writes_is_what_it_writes_alone(tmp_path: Path) -> None:
    for name in ("alone", "watched"):
        script(tmp_path / name, WRITES)
    # The second time, all of it is there already.
    for _ in range(2):
        left = bare(tmp_path / "alone", PYTHON, "train.py")
        assert left.code == 0, left.err
        done = probed(tmp_path / "watched", PYTHON, "train.py")
        assert done.code == 0, done.err
        assert tree(tmp_path / "watched") == tree(tmp_path / "alone")
        assert_exact(done)


def test_a_script_that_goes_on_from_its_newest_checkpoint_is_probed_from_where_it_began(
    tmp_path: Path,
) -> None:
    for name in ("alone", "watched"):
        script(tmp_path / name, RESUMES)
    for steps in ("3", "6"):
        left = bare(tmp_path / "alone", PYTHON, "train.py", steps)
        assert left.code == 0, left.err
        done = probed(tmp_path / "watched", PYTHON, "train.py", steps)
        assert done.code == 0, done.err
        assert tree(tmp_path / "watched") == tree(tmp_path / "alone")
        assert_exact(done)
    assert len(done.record().stability.loss_values) == 3


def test_a_command_that_fails_after_its_training_is_probed_and_stays_failed(
    tmp_path: Path,
) -> None:
    """Its log is a file that the shell has opened."""
    for name in ("alone", "watched"):
        script(tmp_path / name, "callbacks, newest = [], None", "sys.exit(9)")
    line = f"{PYTHON} train.py > log.txt 2> err.txt"
    left = bare(tmp_path / "alone", "bash", "-c", line)
    done = probed(tmp_path / "watched", "bash", "-c", line)
    assert (left.code, done.code) == (9, 9)
    for name in ("log.txt", "final.pt"):
        there, here = (tmp_path / side / name for side in ("alone", "watched"))
        if name == "final.pt":
            assert here.read_bytes() == there.read_bytes()
        else:
            assert "steps 6" in here.read_text()
    assert [*tree(tmp_path / "watched")] == [*tree(tmp_path / "alone")]
    assert_exact(done)
    record = done.record()
    assert record.status == "failed"
    assert "with code 9" in (record.reason or "")


def test_a_file_that_cannot_be_kept_leaves_the_probe_out_and_says_so(tmp_path: Path) -> None:
    script(tmp_path, "callbacks, newest = [], None\nopen('huge.bin', 'r+b').write(b'x')")
    with (tmp_path / "huge.bin").open("wb") as stream:
        stream.truncate(300 << 20)
    done = probed(tmp_path, PYTHON, "train.py")
    assert done.code == 0, done.err
    record = done.record()
    assert (record.status, record.exact) == ("completed", {})
    said = f"the probe was not run: the command changes {tmp_path}/huge.bin, which is too large"
    assert record.unmeasured["exact"].startswith(said)
    assert said in done.err
    assert [launch.kind for launch in record.launches] == ["measured"]
