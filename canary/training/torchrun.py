"""torchrun that ends with the canary: `python -m canary.training.torchrun OPTIONS...`."""

from __future__ import annotations

import sys

from canary.protocol.lifeline import die_with_parent


def main(arguments: list[str]) -> None:
    """Run torchrun in this process."""
    die_with_parent()
    from torch.distributed.run import main as torchrun

    torchrun(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
