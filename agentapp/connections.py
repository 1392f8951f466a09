"""How the database, the broker and the shared cache are connected to, and how long each is waited for.

Settings are made of this; it reads none.
"""

import select
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import dj_database_url
import psycopg
from psycopg.conninfo import conninfo_to_dict

# A server that does not take a connection, or says nothing, in this time is taken to be away.
DATABASE_CONNECTS_WITHIN_SECONDS = 5
BROKER_ANSWERS_WITHIN_SECONDS = 3
CACHE_ANSWERS_WITHIN_SECONDS = 1
# A host that has vanished closes nothing: the kernel finds out, in a minute where nothing is under way, in half a
# minute where a statement was sent.
_KEEPALIVE = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
# Values apart from the statement, which is prepared when it is asked for the third time.
_PREPARED = {"server_side_binding": True, "prepare_threshold": 2}
# Django's own, and a little more.
POSTGRESQL = "agentapp.postgresql"


def database(url: str, pool_size: int, prepares: bool = False, by_transaction: bool = False) -> dict[str, object]:
    """One database from a URL. SQLite gets WAL and immediate transactions, PostgreSQL a pool.

    `prepares`: PostgreSQL plans what it is asked often once for each connection, and not each time. `by_transaction`:
    what is in between gives each transaction another connection, so that nothing may be left open for the next.

    What the URL says after its question mark, as in `?sslmode=verify-full`, goes before what is said here.
    """
    if "://" not in url:  # with one slash it would be read, as a database on this machine
        raise ValueError("It starts with sqlite:// or postgres://.")
    config: dict[str, Any] = dict(dj_database_url.parse(url))
    asked: dict[str, Any] = config.get("OPTIONS", {})
    if config["ENGINE"] == "django.db.backends.sqlite3":
        config["OPTIONS"] = {
            # Taking the write lock at BEGIN is what makes "look, then change" safe on SQLite.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            # NORMAL would forget the last commits with the power: a call that was begun would be begun again.
            "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;",
        }
    elif config["ENGINE"] == "django.db.backends.postgresql":
        config["OPTIONS"] = {
            "connect_timeout": DATABASE_CONNECTS_WITHIN_SECONDS,
            **_KEEPALIVE,
            **(_PREPARED if prepares else {}),
            **asked,
            "pool": {"min_size": 1, "max_size": pool_size, "timeout": 10, "check": nothing_was_said},
        }
        config["DISABLE_SERVER_SIDE_CURSORS"] = by_transaction
        config["ENGINE"] = POSTGRESQL
    else:
        raise ValueError("Only sqlite:// and postgres:// are supported.")
    return config


def listening(url: str) -> dict[str, Any]:
    """How what the ledger announces is listened for at an address of its own. Raises ValueError."""
    if not url.startswith(("postgres://", "postgresql://")):
        raise ValueError("It starts with postgres://.")
    try:
        asked = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        # What the library says of it can quote the password.
        raise ValueError("PostgreSQL's library does not understand it.") from None
    ports = str(asked.get("port", "")).split(",")
    if not all(port == "" or (port.isdecimal() and 0 < int(port) < 65536) for port in ports):
        raise ValueError("Its port is a number up to 65535.")
    return {"connect_timeout": DATABASE_CONNECTS_WITHIN_SECONDS, **_KEEPALIVE, **asked}


def nothing_was_said(connection: Any) -> None:
    """Raise if a connection is no longer good for use: the pool then gives another.

    A server that goes away says so, or closes the connection; one that is well says nothing to a connection that lies
    idle. So a look at the socket is enough, and no statement is sent where none was asked for.
    """
    idle = select.poll()
    idle.register(connection.fileno(), select.POLLIN)
    if idle.poll(0):
        connection.close()  # else the pool takes it back
        raise ConnectionError("The server has ended this connection while it lay idle.")


def broker_url(redis_url: str) -> str:
    """The address of Redis as Celery's library has it: of a socket it speaks otherwise than Redis's own."""
    if not redis_url.startswith("unix://"):
        return redis_url
    given = urlsplit(redis_url)
    asked = {name: values[0] for name, values in parse_qs(given.query).items()}
    # Redis's own takes these also behind the question mark.
    who = ":".join(quote(asked.get(name, ""), safe="") for name in ("username", "password"))
    place = given.netloc or (f"{who}@" if who != ":" else "")
    return f"redis+socket://{place}{given.path}?virtual_host={asked.get('db', '0')}"


def is_encrypted_blindly(redis_url: str) -> bool:
    """Whether an address asks for TLS and says nothing of certificates."""
    given = urlsplit(redis_url)
    return given.scheme == "rediss" and not any(name.startswith("ssl_") for name in parse_qs(given.query))


def broker_options(embedded: bool) -> dict[str, object]:
    """How Celery talks to its broker."""
    if embedded:
        return {"polling_interval": 0.02}
    return {
        # A message held by a killed worker comes back in visibility_timeout + 2 s. The sweep is
        # faster; this only empties the broker. Longer than any time slice, or work is delivered twice.
        "visibility_timeout": 600,
        "unacked_restore_interval": 2,
        "unacked_restore_throttle": 1,
        # Whoever tells a worker something is answered, or goes on without. A worker that waits for messages asks with
        # a time of its own, which is shorter, and reads when something has come.
        "socket_connect_timeout": BROKER_ANSWERS_WITHIN_SECONDS,
        "socket_timeout": BROKER_ANSWERS_WITHIN_SECONDS,
        # Else kombu tries for six seconds to reach a broker that refuses. Workers and beat keep trying all the same.
        "max_retries": 0,
    }


def caches(redis_url: str, prefix: str) -> dict[str, dict[str, object]]:
    """`default`: what several web processes count together. `process`: what each may know for itself."""
    in_process = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
    # Without Redis there is one process.
    shared: dict[str, object] = {**in_process}
    if redis_url:
        timeout = CACHE_ANSWERS_WITHIN_SECONDS
        shared = {
            "BACKEND": "agentapp.shared_cache.SharedCache",
            "LOCATION": redis_url,
            "KEY_PREFIX": prefix,
            "OPTIONS": {
                "serializer": "agentapp.shared_cache.AsJson",
                "socket_connect_timeout": timeout,
                "socket_timeout": timeout,
            },
        }
    return {"default": shared, "process": {**in_process, "LOCATION": "process"}}
