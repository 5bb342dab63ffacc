"""Programs that measure the figures in README and docs."""
