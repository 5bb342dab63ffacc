"""A corpus of trainings with a fault from the first day, and of healthy trainings that look odd."""
