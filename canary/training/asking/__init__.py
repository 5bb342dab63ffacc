"""What the look asks of the first updates: what each token was trained towards, and the model again
about the same rows."""
