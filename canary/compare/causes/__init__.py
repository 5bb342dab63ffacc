"""Causes: one mechanism a file. A cause looks at facts, never at names of runs or of changes."""
