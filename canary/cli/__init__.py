"""The command line."""

from canary.cli.verbs import app as app
from canary.cli.verbs import main as main
