"""A launch that is cut short, or repeats another, sends nothing to a hub."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import transformers.trainer
from huggingface_hub import HfApi, upload_folder
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from canary.training.attach.suppress import Suppression

suppression = Suppression(None)
suppression.pushes()
PreTrainedModel.push_to_hub(object(), "somebody/model")
PreTrainedTokenizerBase.push_to_hub(object(), "somebody/model")
HfApi(endpoint="http://127.0.0.1:9").upload_folder(repo_id="a/b", folder_path=".")
HfApi(endpoint="http://127.0.0.1:9").create_commit("a/b", [], commit_message="x")
import peft
peft.PeftModel.push_to_hub(object(), "somebody/adapter")
print(len(suppression.notes))
"""


@pytest.mark.slow
def test_nothing_is_pushed_from_the_start_of_such_a_training() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "3\n"
