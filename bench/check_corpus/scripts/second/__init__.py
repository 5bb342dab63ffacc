"""Scripts of the second corpus."""
