"""Evals: written-down situations, run with mocked tools and compared with what should have come of them."""
