"""GitHub in this process: it keeps state, and holds every request and answer to GitHub's own
description of its interface."""
