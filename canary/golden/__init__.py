"""Golden files: the values that a training must give again, in the canary's and others' schemas."""
