"""Campaigns run a canary several times to answer one question: A/B, calibration, demo."""
