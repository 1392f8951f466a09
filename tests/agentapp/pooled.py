"""PostgreSQL as tests of its connections see it: through a connection apart from the product's, which has few."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection, connections


def _beside() -> psycopg.Connection[Any]:
    database = connection.settings_dict
    where = {"host": database["HOST"], "port": database["PORT"], "user": database["USER"], "dbname": database["NAME"]}
    return psycopg.connect(**where, password=database["PASSWORD"], autocommit=True)


@pytest.fixture
def server(transactional_db: None) -> Iterator[psycopg.Connection[Any]]:
    """A connection of the test's own, which is not the product's."""
    with _beside() as made:
        yield made


@pytest.fixture
def other_server(transactional_db: None) -> Iterator[psycopg.Connection[Any]]:
    """One more."""
    with _beside() as made:
        yield made


@pytest.fixture
def small_pool(transactional_db: None) -> Iterator[None]:
    """The product's pool has two connections."""
    pool: Any = connections.settings["default"]["OPTIONS"]["pool"]
    before = pool["max_size"]
    _anew(pool, 2)
    yield
    _anew(pool, before)


def _anew(pool: dict[str, Any], size: int) -> None:
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]
    pool["max_size"] = size
