"""Gathers the pages of the documentation site: those that GitHub shows, the notebooks, and the
Python reference. Any generator of static sites can build them."""
