"""What a history says: how each metric went over the stored runs, and since when it is another."""
