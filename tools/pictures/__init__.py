"""The README's pictures, drawn from one real demo: `python -m tools.pictures`."""
