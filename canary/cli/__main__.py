"""`python -m canary.cli`: how the canary starts itself."""

from canary.cli import main

main()
