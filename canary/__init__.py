"""RLHF Canary: a short training run on every change, compared with the runs before it."""

__version__ = "0.1.0"
