"""One module per schema of golden files."""
