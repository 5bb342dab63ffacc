"""Names of settings that say where a run puts things, or what it is called. Standard library."""

from __future__ import annotations

import re

TRACKERS = "wandb|comet|mlflow|neptune|tensorboard|trackio|clearml|swanlab"
SECTION = re.compile(rf"(.*\.)?(hydra|loggers?|{TRACKERS})\..*")
"""Dotted names in a section that is about nothing else."""
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
"""Matched whole, against the last part of a dotted name in lower case."""


def plain_name(name: str) -> str:
    """An option, a dotted key or a variable as a setting's name: `--run-name` is `run_name`."""
    return name.lstrip("-+~").replace("-", "_")


def is_place(name: str) -> bool:
    """Whether a setting of this name cannot change what is trained: a folder of results, a run's
    name, what hears of it."""
    plain = plain_name(name).lower()
    last = plain.rpartition(".")[2]
    return (SECTION.fullmatch(plain) or PLACE.fullmatch(last)) is not None
