"""`python -m canary.cli`: how the canary starts itself."""

from canary.protocol.lifeline import end_with_starter

end_with_starter()

from canary.cli import main  # noqa: E402 - its imports take a while

main()
