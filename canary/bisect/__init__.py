"""Which commit, or which version of which package, made it worse: `canary bisect`."""
