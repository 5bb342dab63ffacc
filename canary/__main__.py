"""`python -m canary`: the command line."""

from canary.cli import main

main()
