"""Failed sign-ins are counted whatever happens to Redis: together while it is there, otherwise by each process."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.cache.backends.locmem import LocMemCache
from django.test import Client

from agentapp import connections, shared_cache
from tests.absent import OwnRedis, own_redis, refusing, silent

PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def _redis_was_there_a_moment_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_cache._away, "until", 0.0)
    LocMemCache(shared_cache.OWN, {}).clear()


@pytest.fixture
def own(tmp_path: Path, settings: Any) -> Iterator[OwnRedis]:
    with own_redis(tmp_path) as server:
        settings.CACHES = connections.caches(server.url, "tests")
        yield server


def away(settings: Any, port: int) -> None:
    settings.CACHES = connections.caches(f"redis://127.0.0.1:{port}/0", "tests")


def tries(client: Client, times: int) -> list[int]:
    """The answers to wrong passwords."""
    body = {"username": "dana", "password": "wrong"}
    return [client.post("/login/", body).status_code for _ in range(times)]


@pytest.mark.django_db
class TestWhileRedisIsAway:
    def test_people_sign_in_and_wrong_passwords_are_counted_all_the_same(
        self, client: Client, dana: User, settings: Any
    ) -> None:
        with refusing() as port:
            away(settings, port)
            assert client.get("/login/").status_code == 200
            assert tries(client, 6) == [422, 422, 422, 422, 422, 429]
            right = client.post("/login/", {"username": "dana", "password": PASSWORD})
            assert right.status_code == 429
            assert "Locked for" in right.content.decode()
            assert Client().post("/login/", {"username": "nobody", "password": "x"}).status_code == 422

    def test_who_gets_it_right_is_let_in(self, client: Client, dana: User, settings: Any) -> None:
        with refusing() as port:
            away(settings, port)
            assert client.post("/login/", {"username": "dana", "password": PASSWORD}).status_code == 302
            assert client.get("/inbox/").status_code == 200

    def test_a_redis_that_hangs_is_waited_for_once(
        self, client: Client, dana: User, settings: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Longer than six people take to sign in, however slow the machine.
        monkeypatch.setattr(shared_cache, "AWAY_FOR_SECONDS", 600)
        with silent() as server:
            away(settings, server.port)
            assert tries(client, 6)[-1] == 429
            assert server.connections() == 1


def test_every_way_to_ask_is_answered_while_it_is_away(settings: Any) -> None:
    with refusing() as port:
        away(settings, port)
        assert cache.add("a", 1) is True
        assert cache.add("a", 2) is False
        assert (cache.get("a"), cache.get("b", "nothing"), cache.has_key("a"), cache.incr("a")) == (
            1,
            "nothing",
            True,
            2,
        )
        assert cache.touch("a", 60) is True
        assert cache.set_many({"c": 3, "d": 4}) == []
        assert cache.get_many(["a", "c", "x"]) == {"a": 2, "c": 3}
        cache.delete_many(["c"])
        assert cache.delete("d") is True
        assert cache.get_many(["a", "c", "d"]) == {"a": 2}
        cache.clear()
        assert cache.get("a") is None


@pytest.mark.redis
class TestWhileRedisIsThere:
    def test_what_is_counted_is_seen_by_every_process(self, own: OwnRedis) -> None:
        cache.set("tries", [1.5, 2.5], 60)
        with redis.Redis.from_url(own.url) as other:
            assert other.get("tests:1:tries") == b"[1.5, 2.5]"
        assert cache.get("tries") == [1.5, 2.5]
        assert cache.add("tries", [], 60) is False
        assert cache.delete("tries") is True

    def test_a_redis_that_is_full_is_as_one_that_is_away(self, own: OwnRedis) -> None:
        own.fill()
        cache.set("tries", [1.5], 60)
        assert cache.get("tries") == [1.5]

    def test_one_that_is_back_counts_again(self, own: OwnRedis, monkeypatch: pytest.MonkeyPatch) -> None:
        own.stop()
        cache.set("tries", [1.5], 60)
        own.start()
        monkeypatch.setattr(shared_cache._away, "until", 0.0)
        assert cache.get("tries") is None
        cache.set("tries", [2.5], 60)
        with redis.Redis.from_url(own.url) as other:
            assert other.get("tests:1:tries") == b"[2.5]"

    def test_a_pickle_that_somebody_has_put_there_is_not_opened(self, own: OwnRedis, tmp_path: Path) -> None:
        canary = tmp_path / "canary"
        with redis.Redis.from_url(own.url) as other:
            other.set("tests:1:tries", pickle.dumps(_Canary(str(canary))))
        assert cache.get("tries", "nothing") == "nothing"
        assert not canary.exists()

    def test_emptying_it_leaves_alone_what_others_keep_there(self, own: OwnRedis) -> None:
        with redis.Redis.from_url(own.url) as other:
            other.lpush("countersign", "a message of the broker")
            cache.set("tries", [1.5], 60)
            cache.clear()
            assert other.keys() == [b"countersign"]


class _Canary:
    """If unpickled, it writes a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (self.path, "w"))
