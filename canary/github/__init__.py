"""The gate's answers on GitHub: comment, status, check run, step summary."""
