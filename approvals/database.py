"""What is raised while the database is away, and connections that are of no use any more."""

from django.db import InterfaceError, InternalError, NotSupportedError, OperationalError, connection

AWAY = (OperationalError, InterfaceError, InternalError, NotSupportedError)
"""It cannot be reached, has ended the connection or its transaction, takes no changes, or has planned a statement for
a table that a migration has changed since. What was under way is not saved, nothing is wrong with it, and it can be
done again: never a reason to end a run. (What a database cannot do at all raises the last as well; tests find that.)
"""


def drop_connection() -> None:
    """End this thread's connection for good: given back to the pool, it would be given to the next who asks."""
    if connection.vendor == "postgresql" and connection.connection is not None:
        connection.connection.close()
