"""Faults and harmless changes, with the cause category that a diagnosis should name first."""
