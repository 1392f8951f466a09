"""Django's PostgreSQL backend, with the connection settings that pages need. `connections` names it as ENGINE."""

from django.conf import settings

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
