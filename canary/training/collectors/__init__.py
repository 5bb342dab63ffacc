"""What is measured inside the training process. The only part of `collect` that imports torch."""
