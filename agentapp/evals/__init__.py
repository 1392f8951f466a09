"""Evals: situations that are written down, run with mocked tools, and held against what should have come of them."""
