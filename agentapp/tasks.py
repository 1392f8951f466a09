"""Celery: claim, call, return. A message is a nudge; losing or doubling one changes nothing."""
