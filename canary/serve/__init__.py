"""`canary serve`: the runs of a folder as pages that grow while the runs go on. Read-only."""
