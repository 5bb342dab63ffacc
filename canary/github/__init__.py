"""What the gate says on GitHub: comment, status, check run, step summary."""
