"""Executes the notebooks and stores their outputs without paths, dates and names of the machine."""
