"""Which package, and which version of it, made a run worse."""
