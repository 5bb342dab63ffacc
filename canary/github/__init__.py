"""The gate's answers on GitHub: comment, status, step summary."""
