"""Proximal policy optimization (PPO) with the canary's training loop."""
