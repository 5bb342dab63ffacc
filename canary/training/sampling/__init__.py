"""Sampling in a training: what was sampled, by which weights, and what it was rewarded."""
