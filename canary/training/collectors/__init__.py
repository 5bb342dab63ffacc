"""Collectors: code inside the training process that gathers rows and signals."""
