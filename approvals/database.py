"""What is raised while the database is away."""

from django.db import InterfaceError, InternalError, OperationalError

AWAY = (OperationalError, InterfaceError, InternalError)
"""It cannot be reached, has ended the connection or its transaction, or takes no changes. What was under way is not
saved, nothing is wrong with it, and it can be done again: never a reason to end a run.
"""
