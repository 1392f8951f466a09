"""How to connect to the database, the broker and the shared cache, and how long to wait for each.

Settings are made from this; it reads none itself.
"""

import select
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import dj_database_url
import psycopg
from psycopg.conninfo import conninfo_to_dict

# A server that does not accept a connection, or does not answer, within this time counts as unreachable.
DATABASE_CONNECTS_WITHIN_SECONDS = 5
# If all tries to connect fail for so long, it is away; the tries begin anew.
DATABASE_IS_AWAY_SECONDS = 3
# While it is away, nobody waits longer than this.
DATABASE_AWAY_WAITS_SECONDS = 1
BROKER_ANSWERS_WITHIN_SECONDS = 3
CACHE_ANSWERS_WITHIN_SECONDS = 1
# A vanished host closes nothing: the kernel finds out, within a minute if the connection is idle, within half a minute
# if a statement was sent.
_KEEPALIVE = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
# Values are sent apart from the statement, which is prepared at its third use.
_PREPARED = {"server_side_binding": True, "prepare_threshold": 2}
# Django's own, and a little more.
POSTGRESQL = "agentapp.postgresql"


def database(url: str, pool_size: int, prepares: bool = False, by_transaction: bool = False) -> dict[str, object]:
    """One database from a URL. SQLite gets WAL and immediate transactions, PostgreSQL a pool.

    `prepares`: PostgreSQL plans frequent statements once per connection, not each time. `by_transaction`: a pooler in
    between gives each transaction another connection, so nothing may stay open for the next one.

    Options after the URL's question mark, as in `?sslmode=verify-full`, override those set here.
    """
    if "://" not in url:  # with one slash, it would be read as a database on this machine
        raise ValueError("It must start with sqlite:// or postgres://.")
    config: dict[str, Any] = dict(dj_database_url.parse(url))
    asked: dict[str, Any] = config.get("OPTIONS", {})
    if config["ENGINE"] == "django.db.backends.sqlite3":
        config["OPTIONS"] = {
            # Taking the write lock at BEGIN is what makes "look, then change" safe on SQLite.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            # NORMAL would lose the last commits in a power failure, and a call that had begun would begin again.
            "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;",
        }
    elif config["ENGINE"] == "django.db.backends.postgresql":
        config["OPTIONS"] = {
            "connect_timeout": DATABASE_CONNECTS_WITHIN_SECONDS,
            **_KEEPALIVE,
            **(_PREPARED if prepares else {}),
            **asked,
            "pool": {
                "min_size": 1,
                "max_size": pool_size,
                "timeout": DATABASE_CONNECTS_WITHIN_SECONDS,
                # Each wait before a try to connect is twice as long as the one before. With the library's five minutes,
                # an outage could last twice as long as the server was away.
                "reconnect_timeout": DATABASE_IS_AWAY_SECONDS,
                "reconnect_failed": is_away,
            },
        }
        config["DISABLE_SERVER_SIDE_CURSORS"] = by_transaction
        config["ENGINE"] = POSTGRESQL
    else:
        raise ValueError("Only sqlite:// and postgres:// are supported.")
    return config


def listening(url: str) -> dict[str, Any]:
    """How to listen for the ledger's announcements at a separate address. Raises ValueError."""
    if not url.startswith(("postgres://", "postgresql://")):
        raise ValueError("It must start with postgres://.")
    try:
        asked = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        # The library's own message can quote the password.
        raise ValueError("PostgreSQL's library does not understand it.") from None
    ports = str(asked.get("port", "")).split(",")
    if not all(port == "" or (port.isdecimal() and 0 < int(port) < 65536) for port in ports):
        raise ValueError("Its port must be a number up to 65535.")
    return {"connect_timeout": DATABASE_CONNECTS_WITHIN_SECONDS, **_KEEPALIVE, **asked}


def is_away(pool: Any) -> None:
    """The pool has given up connecting, which it does not if all its connections are merely in use: have it go on."""
    pool.timeout = DATABASE_AWAY_WAITS_SECONDS
    pool.check()  # an empty pool begins to grow again


def was_ended(idle: Any) -> bool:
    """Whether the server has ended an idle connection.

    A server that goes away says so or closes the connection; a healthy server sends nothing to an idle one. So checking
    the socket is enough, without sending a statement.
    """
    if idle.closed:
        return True
    asked = select.poll()
    asked.register(idle.fileno(), select.POLLIN)
    return bool(asked.poll(0))


def broker_url(redis_url: str) -> str:
    """The address of Redis in the form Celery's library takes, which for a socket differs from that of Redis's own."""
    if not redis_url.startswith("unix://"):
        return redis_url
    given = urlsplit(redis_url)
    asked = {name: values[0] for name, values in parse_qs(given.query).items()}
    # Redis's own library also takes these after the question mark.
    who = ":".join(quote(asked.get(name, ""), safe="") for name in ("username", "password"))
    place = given.netloc or (f"{who}@" if who != ":" else "")
    return f"redis+socket://{place}{given.path}?virtual_host={asked.get('db', '0')}"


def is_encrypted_blindly(redis_url: str) -> bool:
    """Whether an address asks for TLS but says nothing about certificates."""
    given = urlsplit(redis_url)
    return given.scheme == "rediss" and not any(name.startswith("ssl_") for name in parse_qs(given.query))


def broker_options(embedded: bool) -> dict[str, object]:
    """How Celery talks to its broker."""
    if embedded:
        return {"polling_interval": 0.02}
    return {
        # A message held by a killed worker comes back after visibility_timeout + 2 s. The sweep is
        # faster; this only empties the broker. It must exceed any time slice, or work is delivered twice.
        "visibility_timeout": 600,
        "unacked_restore_interval": 2,
        "unacked_restore_throttle": 1,
        # A process that sends a worker something gets an answer in this time, or goes on without one. A worker that
        # waits for messages uses its own, shorter time, and reads when something has come.
        "socket_connect_timeout": BROKER_ANSWERS_WITHIN_SECONDS,
        "socket_timeout": BROKER_ANSWERS_WITHIN_SECONDS,
        # Otherwise kombu tries for six seconds to reach a broker that refuses. Workers and beat keep trying anyway.
        "max_retries": 0,
        # A worker whose connection leads nowhere any more, as after a failover, notices within about twice this time.
        "health_check_interval": 5,
    }


def caches(redis_url: str, prefix: str) -> dict[str, dict[str, object]]:
    """`default`: what several web processes count together. `process`: what each may keep for itself."""
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
