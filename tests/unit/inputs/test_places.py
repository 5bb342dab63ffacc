"""Models and data that are not there: told without torch, by what is there under nearly that name,
and by what the hub answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from canary.config.load import load_config
from canary.errors import InputError
from canary.inputs.locations import data_place, model_folder
from canary.inputs.preconditions import look_beforehand


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a model and data in it."""
    (tmp_path / "models" / "llama").mkdir(parents=True)
    (tmp_path / "models" / "llama.md").write_text("")
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "train.jsonl").write_text("{}\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("./models/lama", "models/llama"),
        ("./modles/lama", "models/llama"),
        ("./elsewhere/llama", None),
    ],
)
def test_a_model_folder_that_is_not_there_is_told_with_the_nearest_one(
    name: str, near: str | None
) -> None:
    with pytest.raises(InputError, match="does not exist: no folder") as raised:
        model_folder(name)
    hint = f"did you mean '{near}'?" if near else "give a folder made by save_pretrained"
    assert hint in str(raised.value)


@pytest.mark.parametrize("read", [model_folder, lambda name: data_place(name, "sft")])
def test_a_name_that_is_too_long_for_any_file_is_that_of_nothing(
    read: Callable[[str], Path | None],
) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read("./" + "x" * 400)


@pytest.mark.parametrize("name", ["rows/trian.jsonl", "row/train.jsonl"])
def test_data_that_are_not_there_are_told_with_the_nearest_file(name: str) -> None:
    with pytest.raises(InputError, match=r"did you mean 'rows/train\.jsonl'\?"):
        data_place(name, "sft")


def test_what_only_the_hub_can_have_is_no_place() -> None:
    assert model_folder("org/model") is None
    assert data_place("org/rows", "sft") is None


ANSWERS = {
    "org/there": (200, ""),
    "org/other-files": (404, "EntryNotFound"),
    "org/busy": (503, ""),
    "org/gated": (403, "GatedRepo"),
    "org/absent": (404, "RepoNotFound"),
    "org/hidden": (401, "RepoNotFound"),
    "org/older": (404, "RevisionNotFound"),
    "models/lama": (401, "RepoNotFound"),
}


class Hub(BaseHTTPRequestHandler):
    """As the hub answers."""

    def do_HEAD(self) -> None:
        name = "/".join(self.path.removeprefix("/datasets").split("/")[1:3])
        code, word = ANSWERS[name]
        self.send_response(code)
        if word:
            self.send_header("X-Error-Code", word)
        self.send_header("ETag", '"x"')
        self.send_header("X-Repo-Commit", "a" * 40)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


ASK = """
import json, sys, time
from pathlib import Path
from canary.config.load import load_config, load_values
from canary.errors import InputError
from canary.inputs.preconditions import look_beforehand
from canary.inputs.locations import require_on_hub

told = []
for kind, name in json.loads(sys.argv[1]):
    began = time.monotonic()
    try:
        require_on_hub(kind, name, "v1", prepared=Path("prepared"))
        told.append("")
    except InputError as error:
        told.append(str(error))
    assert time.monotonic() - began < 15
assert not {"torch", "transformers", "datasets"} & set(sys.modules)
print(json.dumps(told))
"""


def asked(*questions: tuple[str, str], **environment: str) -> list[str]:
    """What is said of each (kind, name); nothing where the training may begin."""
    kept = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
    done = subprocess.run(
        [sys.executable, "-c", ASK, json.dumps(questions)],
        env=kept | {"HF_HOME": str(Path("home").absolute())} | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


def test_gated_absent_private_and_an_unknown_revision_are_told_apart(hub: str) -> None:
    there, files, busy, gated, absent, older, near = asked(
        ("model", "org/there"),
        ("model", "org/other-files"),
        ("dataset", "org/busy"),
        ("model", "org/gated"),
        ("dataset", "org/absent"),
        ("model", "org/older"),
        ("model", "models/lama"),
        HF_ENDPOINT=hub,
    )
    assert (there, files, busy) == ("", "", "")
    assert "'org/gated' is gated" in gated
    assert f"accept its terms at {hub}/org/gated, and set HF_TOKEN" in gated
    assert "dataset 'org/absent' is not a local file or folder" in absent
    assert "the hub has no such dataset, or it is private and HF_TOKEN is not set" in absent
    assert f"check the name: {hub}/datasets/org/absent" in absent
    assert "model 'org/older' has no revision 'v1' on the hub" in older
    assert "did you mean 'models/llama'?" in near


def test_with_a_token_a_private_model_is_not_blamed_on_its_absence(hub: str) -> None:
    (hidden,) = asked(("model", "org/hidden"), HF_ENDPOINT=hub, HF_TOKEN="hf_own")
    assert "your token can read no such model on the hub" in hidden


def test_a_hub_that_cannot_be_reached_is_told_as_that() -> None:
    model, near = asked(
        ("model", "org/model"), ("model", "models/lama"), HF_ENDPOINT="http://127.0.0.1:9"
    )
    assert "the hub at http://127.0.0.1:9 cannot be reached: " in model
    assert model.endswith("(check the network, or give a local one)")
    assert near.endswith("(did you mean 'models/llama'?)")


def test_offline_only_the_cache_counts(tmp_path: Path) -> None:
    (tmp_path / "home" / "hub" / "models--org--kept" / "snapshots").mkdir(parents=True)
    (tmp_path / "prepared" / "org___rows").mkdir(parents=True)
    kept, prepared, missing = asked(
        ("model", "org/kept"), ("dataset", "org/rows"), ("dataset", "org/more"), HF_HUB_OFFLINE="1"
    )
    assert (kept, prepared) == ("", "")
    assert "HF_HUB_OFFLINE is set" in missing
    assert "hf download --repo-type dataset org/more" in missing


@pytest.mark.parametrize("weights", ["model.safetensors", "model.safetensors.index.json"])
def test_a_model_folder_without_weights_is_refused_before_anything_starts(
    tmp_path: Path, weights: str
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_text("{}", encoding="utf-8")
    loaded = load_config(None, [f"model_name={folder}"])
    with pytest.raises(InputError, match=r"model '.*mine' has no weights: no \.safetensors"):
        look_beforehand(loaded, tmp_path, lambda note: None)
    (folder / weights).touch()
    look_beforehand(loaded, tmp_path, lambda note: None)
