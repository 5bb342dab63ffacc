"""Names of settings for secrets, outputs, loggers and run names. Standard library only."""

from __future__ import annotations

import re

TRACKERS = "wandb|comet|mlflow|neptune|tensorboard|trackio|clearml|swanlab"
SECTION = re.compile(rf"(.*\.)?(hydra|loggers?|{TRACKERS})\..*")
"""Dotted names in a section that only configures logging."""
PLACE = re.compile(
    r"o|out|output|out(put)?_?(dir|path|folder|file|name)|save_?(dir|path|folder|to)"
    r"|overwrite_output_dir|results?_?dir|default_root_dir"
    r"|log(ging)?_?(dir|path|folder|file)|log_?level.*|logging_(steps|strategy|first_step)"
    r"|log_(every|interval|freq|completions).*|log_with|with_tracking|report_to|tracker_.*"
    r"|disable_tqdm|verbose|quiet|.*_verbosity|pythonunbuffered"
    r"|run_?(name|id)|exp(eriment)?_?(name|id)|job_?name|project(_?name)?|tags?|notes?"
    rf"|loggers?|(use_)?({TRACKERS})(_.*)?"
    r"|(push_to_)?hub(_.*)?|cache_(dir|path)|hf_(home|.*_cache|hub_offline)|.*_cache_(home|dir)"
    r"|transformers_cache|torch_home|tmpdir|tokenizers_parallelism"
    r"|cuda_visible_devices|master_(addr|port)|main_process_(ip|port)|rdzv_.*"
)
"""Must match the whole last part of a dotted name in lower case."""


def plain_name(name: str) -> str:
    """Return the setting's name of an option, key or variable: `run_name` for `--run-name`."""
    return name.lstrip("-+~").replace("-", "_")


def is_place(name: str) -> bool:
    """Return whether the setting only names outputs, a run or a tracker, not what is trained."""
    plain = plain_name(name).lower()
    last = plain.rpartition(".")[2]
    return (SECTION.fullmatch(plain) or PLACE.fullmatch(last)) is not None


TOKENS = ("CANARY_TOKEN", "GITHUB_TOKEN", "GH_TOKEN")
"""Variables that hold a job's token."""
WORDS = "token|secrets?|pass(word|wd|phrase)|pwd|credentials?|creds?|bearer|jwt"
"""Words that mean a secret in any name."""
KINDS = "access|api|auth|deploy|encryption|private|service|signing|ssh"
"""Words that make a `key` secret; `sort_key` is not."""
SETTING = re.compile(
    rf"(.*_)?({WORDS}|({KINDS})_?key)|.*(secret|pass(word|wd|phrase)|credentials?)(_?key)?"
    rf"|(hub|hf|{KINDS}|{TRACKERS})_?(api_?)?(token|key)"
    r"|((db|database|user|http|proxy|smtp|ssh|git|github|gitlab|hub|hf)_?)?(pass|pat)"
)
"""Must match the whole last part of a dotted name in lower case."""
SPECIAL_TOKEN = re.compile(
    r"(.*_)?(additional_special|audio|begin|bo[aisv]|bos|cls|decoder_start|end|eo[aisv]|eos|first|image"
    r"|instruction|last|mask|max|middle|min|n|new|newline|next|num|per|pad|padding|prefix|response|sep|special|start|stop|suffix"
    r"|think|unk|video|vision)_token"
)
"""Names of vocabulary tokens, which are not secret."""
WORKING = ("PWD", "OLDPWD")
"""Folders of a shell; elsewhere `pwd` means a password."""


def is_special_token(name: str) -> bool:
    """Return whether the name is that of a vocabulary token, such as `eos_token`."""
    return SPECIAL_TOKEN.fullmatch(plain_name(name).lower().rpartition(".")[2]) is not None


def is_secret(name: str) -> bool:
    """Return whether a setting's value is a secret."""
    if name in WORKING:
        return False
    last = plain_name(name).lower().rpartition(".")[2]
    return SETTING.fullmatch(last) is not None and not is_special_token(last)


def may_be_secret(name: str) -> bool:
    """Return whether a record must leave a setting out: a secret, or any kind of key."""
    if is_special_token(name):
        return False
    plain = re.sub(r"[^a-z.]+", "_", name.lower())
    return is_secret(plain) or re.split(r"[_.]", plain)[-1] == "key"
