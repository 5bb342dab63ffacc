"""`python -m canary.cli`, as the canary starts itself."""

from canary.cli import main

main()
