"""Relations asked in the training process: what they see of the first update."""
