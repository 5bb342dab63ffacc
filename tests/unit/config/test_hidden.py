"""Secrets of a command: the program gets them, and nothing that is written or published does."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from canary.compare.commands import command_changes
from canary.config.load import load_config
from canary.config.redaction import hidden, hidden_text, missing_secret
from canary.config.render import resolved_yaml, show_text
from canary.config.setting_names import is_secret, may_be_secret
from canary.errors import ConfigError
from canary.protocol.trainer_config import asked_config
from canary.record.folder import RunFolder
from canary.runner.display.figures import headline
from canary.runner.exec.entry import ExecRequest, load_request
from canary.training.exact.effective import arguments_of, effective_settings
from canary.training.recorder.loop import Loop
from tests.unit.comparing import example

SCRIPT = "export HF_TOKEN=hf_x && WANDB_API_KEY='a b' python train.py --hub_token hf_x --lr 1"
FORM = "hf_" + "a1B2" * 8
COMMANDS = [
    (["python", "t.py", "--hub_token", "hf_x"], ["python", "t.py", "--hub_token", "***"]),
    (["python", "t.py", "--api_key=s", "--lr=1"], ["python", "t.py", "--api_key=***", "--lr=1"]),
    (["env", "WANDB_API_KEY=s", "python", "t.py"], ["env", "WANDB_API_KEY=***", "python", "t.py"]),
    (["python", "t.py", "hub.api_key=s"], ["python", "t.py", "hub.api_key=***"]),
    (["python", "t.py", "--token", "s", "--x"], ["python", "t.py", "--token", "***", "--x"]),
    (["python", "t.py", "--hub_token", "--x"], ["python", "t.py", "--hub_token", "--x"]),
    (["python", "t.py", FORM], ["python", "t.py", "hf_***"]),
    (["python", "t.py", "https://me:pw@host/x"], ["python", "t.py", "https://***@host/x"]),
    (
        ["bash", "-c", SCRIPT],
        [
            *("bash", "-c"),
            "export HF_TOKEN=*** && WANDB_API_KEY='***' python train.py --hub_token *** --lr 1",
        ],
    ),
    (["t.py", '{"api_key": "s", "lr": 1}'], ["t.py", '{"api_key": "***", "lr": 1}']),
    (["t.py", '{"api_key":"s"}'], ["t.py", '{"api_key":"***"}']),
    (["bash", "-c", r't "{\"api_key\": \"s\"}"'], ["bash", "-c", r't "{\"api_key\": \"***\"}"']),
    (["t.py", "--cfg", "api_key:s"], ["t.py", "--cfg", "api_key:***"]),
    (["t.py", "--cfg", "{lr: 1, api_key: s}"], ["t.py", "--cfg", "{lr: 1, api_key: ***"]),
    (["t.py", "x=1,token=s"], ["t.py", "x=1,token=***"]),
    (["t.py", "https://h/x?token=s&y=1"], ["t.py", "https://h/x?token=***&y=1"]),
    (["t.py", "--url=https://h/x?a=b&token=s"], ["t.py", "--url=https://h/x?a=b&token=***"]),
    (["t.py", "postgres://:PW@h"], ["t.py", "postgres://***@h"]),
    (["t.py", "postgres://u:p@w@h/db"], ["t.py", "postgres://***@h/db"]),
    (
        ["python", "-c", "import os; os.environ['HF_TOKEN']='s'; go()"],
        ["python", "-c", "import os; os.environ['HF_TOKEN']='***'; go()"],
    ),
    (["python", "-c", "login(token='s')"], ["python", "-c", "login(token='***')"]),
    (["t.py", "--hub-token", "-value", "--x"], ["t.py", "--hub-token", "***", "--x"]),
    (["bash", "-c", "t --hub-token -value --x"], ["bash", "-c", "t --hub-token *** --x"]),
    (
        ["curl", "-H", "Authorization: Bearer s.s-s", "h"],
        ["curl", "-H", "Authorization: Bearer ***", "h"],
    ),
    (
        ["bash", "-c", "curl -H 'Authorization: Basic czpz' h"],
        ["bash", "-c", "curl -H 'Authorization: Basic ***' h"],
    ),
    (["curl", "-H", "X-Api-Key: s", "h"], ["curl", "-H", "X-Api-Key: ***", "h"]),
    *(
        (["t.py", f"--{name}", "s", f"--{name}=s"], ["t.py", f"--{name}", "***", f"--{name}=***"])
        for name in ("pwd", "pass", "passwd", "pat", "bearer", "jwt", "db-pass")
    ),
    (["t.py", "AKIA" + "Q7" * 8], ["t.py", "AKIA***"]),
    (["t.py", "AIza" + "Sy-_x" * 7], ["t.py", "AIza***"]),
    (["t.py", "eyJhbGciOiJI.eyJzdWIiOiI.c2lnbmF0dXJl-_"], ["t.py", "eyJ***"]),
    (
        ["t.py", "https://hooks.slack.com/services/T0/B0/abc"],
        ["t.py", "https://hooks.slack.com/services/***"],
    ),
]


@pytest.mark.parametrize(("command", "shown"), COMMANDS)
def test_a_secret_in_a_command_is_hidden(command: list[str], shown: list[str]) -> None:
    assert hidden(command) == shown
    assert hidden(shown) == shown, "once is enough"


@pytest.mark.parametrize(
    "command",
    [
        ["python", "t.py", "--eos_token", "<|im_end|>", "--pad_token=<pad>", "--label_key", "x"],
        ["bash", "-c", "python t.py --hub_token $HF_TOKEN --max_tokens 3 --eos_token x"],
        ["python", "-c", "if token == 3: pass"],
        ["python", "t.py", "--tokenizer", "gpt2", "--key", "a", "--pattern", "a***b"],
        ["t.py", "--pass_rate", "0.5", "--max_new_tokens", "8", "tokenizer=gpt2", "PWD=/home/me"],
        ["t.py", "--tokenizer_path=x,n=1", "s3://bucket/a:b", "https://h:8080/@scope/x", "a:1"],
        ["python", "-c", "if token: pass\nelse: token::int"],
        ["python", "-c", "def f(token: str, jwt: bytes = None): return not token: x"],
        ["python", "-c", "ids[token:3]; first pass: 3; {'eos_token': '</s>'}"],
        ["t.py", "--hub_token", "-v", "--eyJ", "eyJ.x", "AKIA", "bearer of news"],
    ],
)
def test_what_is_no_secret_stays(command: list[str]) -> None:
    assert hidden(command) == command
    assert missing_secret(command) is None


@pytest.mark.parametrize("name", ["eos_token", "pad_token", "--bos-token", "a.unk_token"])
def test_special_tokens_are_no_secrets(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *("hub_token", "client_secret", "db_password", "smtp_passwd", "gpg_passphrase", "my_pwd"),
        *("aws_credentials", "aws_creds", "id_jwt", "http_bearer", "wandb_api_key", "ssh_key"),
        *("deploy_key", "pass", "pat"),
    ],
)
def test_a_secret_is_one_wherever_its_name_is_met(name: str) -> None:
    assert is_secret(name)
    assert may_be_secret(name)
    assert Loop("x", settings={name: "s"}).describe()["arguments"] == {}


def test_a_key_of_any_kind_is_in_no_record_and_stays_in_a_command() -> None:
    assert may_be_secret("sort_key")
    assert not is_secret("sort_key")


def test_the_run_gets_the_words_and_its_folder_does_not(tmp_path: Path) -> None:
    loaded = load_request(ExecRequest(("bash", "-c", SCRIPT)))
    assert loaded.config.command[-1] == SCRIPT
    written = resolved_yaml(loaded)
    asked = json.dumps(asked_config(loaded.config))
    for text in (written, asked, headline(loaded.config), show_text(loaded)):
        assert "hf_x" not in text
        assert "a b" not in text
        assert "***" in text


@pytest.mark.parametrize(("command", "shown"), COMMANDS[::8])
def test_a_stored_config_says_what_it_lacks(
    command: list[str], shown: list[str], tmp_path: Path
) -> None:
    if "***" not in str(shown):
        return
    file = tmp_path / "config.yaml"
    file.write_text(resolved_yaml(load_request(ExecRequest(tuple(command)))))
    with pytest.raises(ConfigError, match=r"has \*\*\* as the value of") as caught:
        load_config(file)
    assert "environment" in (caught.value.hint or "")


@pytest.mark.parametrize(("command", "shown"), COMMANDS[::8])
def test_hidden_words_are_no_change_from_hidden_or_older_ones(
    command: list[str], shown: list[str]
) -> None:
    assert command_changes(shown, shown) == ()
    assert command_changes(command, shown) == ()
    found = command_changes([*command, "--lr", "3", "--password=s3c"], [*shown, "--lr", "4"])
    assert "s3c" not in str(found)
    assert len(found) == (1 if command[0] != "bash" else len(found))


def test_a_long_command_is_compared_whole_and_without_its_secrets() -> None:
    long = ["python", "t.py", *["x"] * 1100, "--api_key", "s3cret"]
    assert command_changes(long, [*long[:-1], "other"]) == ()
    assert "s3cret" not in str(command_changes(long, ["python", *long]))


@dataclass
class Arguments:
    eos_token: str | None = None
    pad_token: str | None = None
    hub_token: str | None = None
    wandb_api_key: str | None = None
    learning_rate: float = 1e-4


def test_special_tokens_are_recorded_and_secrets_are_not() -> None:
    given = Arguments(eos_token="<|im_end|>", hub_token="hf_x", wandb_api_key="k")
    found = arguments_of(given)
    assert found == {"eos_token": "<|im_end|>", "pad_token": None, "learning_rate": 1e-4}
    in_force = effective_settings(SimpleNamespace(args=given))
    assert in_force["args.eos_token"] == "<|im_end|>"
    assert "hf_x" not in str(in_force)
    settings = dataclasses.asdict(given)
    recorded = Loop("loop", settings=settings).describe()["arguments"]
    assert recorded == {"eos_token": "<|im_end|>", "pad_token": None, "learning_rate": 1e-4}


def test_a_text_for_a_record_keeps_its_words_and_loses_its_secrets() -> None:
    text = "RuntimeError: cannot connect to postgres://u:pw@h/db with token=tok_x (at t.py:3)"
    shown = "RuntimeError: cannot connect to postgres://***@h/db with token=*** (at t.py:3)"
    assert hidden_text(text) == shown
    assert hidden_text(shown) == shown
    plain = "KeyError: 'token' (at train.py:12); the step passed: 3, eos_token=</s>"
    assert hidden_text(plain) == plain


@pytest.mark.parametrize("kept", ["write", "finish"])
def test_a_record_is_written_without_the_secrets_of_its_texts(tmp_path: Path, kept: str) -> None:
    folder = RunFolder.create(tmp_path, "one")
    made = example()
    told = "no host at postgres://u:pw@h/db"
    made = made.model_copy(update={"reason": told, "notes": [told], "unmeasured": {"exact": told}})
    getattr(folder, kept)(made)
    text = folder.metrics.read_text()
    assert "u:pw" not in text
    assert text.count("postgres://***@h/db") == 3
