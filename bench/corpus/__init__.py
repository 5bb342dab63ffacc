"""Faults, and changes that are none, with the class of cause that a diagnosis should name first."""
