"""Several runs for one question: an A/B of two commits, a calibration, the demo."""
