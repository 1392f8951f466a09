"""Django's PostgreSQL backend, with the connection settings that pages need. `connections` names it as ENGINE."""

from typing import Any

from django.conf import settings
from django.db import connections

# Not among the options, which are psycopg's.
LIMIT = "STATEMENT_SECONDS"


def limit_statements() -> None:
    """Have PostgreSQL end every long statement of this process, which serves pages; before its first connection.

    What anybody can ask of a page must not keep a connection from everybody. Workers ask what we wrote ourselves, and
    what they have done must be recorded, however long they wait for a lock.
    """
    # Behind a pooler that gives each transaction another connection, it would apply to somebody else's statements.
    if not settings.EMBEDDED and settings.DATABASE_LISTENED_TO is None:
        settings.DATABASES["default"][LIMIT] = settings.DATABASE_STATEMENT_SECONDS


def past_poolers() -> dict[str, Any]:
    """What PostgreSQL's library needs to connect to the server itself.

    A pooler that gives each transaction another connection passes no announcements on, and leaves what one session has
    set to the next.
    """
    if settings.DATABASE_LISTENED_TO is not None:
        return dict(settings.DATABASE_LISTENED_TO)
    left_out = ("cursor_factory", "context", "pool", "prepare_threshold")
    parameters = connections["default"].get_connection_params()
    return {name: parameters[name] for name in parameters if name not in left_out}
