"""The gallery of incidents in docs/gallery, made from real runs: `python -m tools.gallery`."""
