"""Threats of addresses that lead elsewhere, tested like those of `test_threats.py`: what guards outgoing requests."""

import dataclasses
import ipaddress
import socket
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from agentapp.tools import outbound
from agentapp.tools.outbound import Address, GuardedTransport, OutboundRefused, Outside
from tests.agentapp.tools.test_outbound import Server, serve

__all__ = ["serve"]
INSIDE = b"what is kept inside"
NAMED = (ipaddress.ip_network("127.0.0.1/32"),)
"""The one address that the settings name. All others of this machine are inside."""

type Serve = Callable[[str], Server]
type Attack = Callable[[], bool]


def is_reached(url: str, outside: Outside) -> bool:
    try:
        outside.address_of(httpx2.URL(url))
    except OutboundRefused:
        return False
    return True


def answers(url: str) -> bytes:
    try:
        return outbound.fetch(url, Outside(networks=NAMED), 100, 5)
    except OutboundRefused:
        return b""


class TestAServerThatSendsUsInside:
    """Threat 9: by a redirect."""

    @pytest.fixture
    def attack(self, serve: Serve) -> Attack:
        inner, outer = serve("127.0.0.2"), serve("127.0.0.1")
        inner.answers["/secret"] = (200, {}, INSIDE)
        outer.answers["/"] = (302, {"Location": f"{inner.url}/secret"}, b"")
        return lambda: answers(f"{outer.url}/") == INSIDE

    def test_the_attack_fails(self, attack: Attack) -> None:
        assert not attack()

    def test_if_only_the_first_address_is_checked_it_succeeds(
        self, attack: Attack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real, checked = Outside.address_of, list[httpx2.URL]()

        def once(self: Outside, url: httpx2.URL) -> Address:
            if checked:
                return ipaddress.ip_address(url.host)
            checked.append(url)
            return real(self, url)

        monkeypatch.setattr(Outside, "address_of", once)
        assert attack()


class TestANameThatChangesItsAddress:
    """Threat 9: when it is looked up, it leads to where we may go, and when we connect, it leads inside."""

    @pytest.fixture
    def attack(self, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Attack:
        inner = serve("127.0.0.2")
        inner.answers["/"] = (200, {}, INSIDE)
        real, turns = socket.getaddrinfo, iter(["127.0.0.1"])

        def turning(host: Any, *others: Any, **more: Any) -> Any:
            return real(next(turns, "127.0.0.2") if host == "shop.example" else host, *others, **more)

        monkeypatch.setattr(socket, "getaddrinfo", turning)
        return lambda: answers(f"http://shop.example:{inner.port}/") == INSIDE

    def test_the_attack_fails(self, attack: Attack) -> None:
        assert not attack()

    def test_if_it_is_looked_up_again_to_connect_it_succeeds(
        self, attack: Attack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def by_name(self: GuardedTransport, request: httpx2.Request) -> httpx2.Response:
            self._outside.address_of(request.url)
            return self._inner.handle_request(request)

        monkeypatch.setattr(GuardedTransport, "handle_request", by_name)
        assert attack()


class TestAnAddressThatNobodyNamed:
    """Threat 9: over http anybody on the way reads and answers, and another host is not the one that was meant."""

    def test_a_public_address_is_not_asked_over_http(self) -> None:
        assert not is_reached("http://8.8.8.8/", Outside())

    def test_unless_http_counts_as_https(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real = Outside.address_of
        monkeypatch.setattr(Outside, "address_of", lambda self, url: real(self, url.copy_with(scheme="https")))
        assert is_reached("http://8.8.8.8/", Outside())

    def test_a_host_that_the_source_does_not_name_is_not_asked(self) -> None:
        assert not is_reached("https://8.8.8.8/", Outside(frozenset({"shop.example"})))

    def test_unless_its_list_of_hosts_is_not_looked_at(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real = Outside.address_of

        def of_any(self: Outside, url: httpx2.URL) -> Address:
            return real(dataclasses.replace(self, hosts=frozenset()), url)

        monkeypatch.setattr(Outside, "address_of", of_any)
        assert is_reached("https://8.8.8.8/", Outside(frozenset({"shop.example"})))
