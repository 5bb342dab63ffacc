"""Names of settings for outputs, logging and run names. Standard library only."""

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
