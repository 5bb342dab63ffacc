"""Many canaries at once: the cells of a matrix, the launchers that start them, and one answer."""
