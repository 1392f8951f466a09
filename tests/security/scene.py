"""Where threats are tried: who asks, who decides, who may do neither; and what a threat is."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client

from agentapp import actions
from agentapp.models import Run, Tool
from approvals import append_only
from approvals.models import Approval
from tests.conftest import Clerk, call, calls, says
from tests.wire import DIALECTS, KEY, Answer, ProviderServer

OPENAI = DIALECTS["openai"]
PAY = calls(call("a", "pay", account="ana", amount=20))


@dataclass
class Scene:
    clerk: Clerk
    dana: User
    outsider: User
    admin: User
    patch: pytest.MonkeyPatch
    settings: Any

    def asked(self, *replies: dict[str, Any]) -> tuple[Run, Approval]:
        run = self.clerk.run(*(replies or (PAY,)), says("done"))
        return run, self.clerk.open(run)[0]

    def kept(self, tool: str) -> None:
        """Only runs of people who are in a group that is empty may call it."""
        Tool.objects.get(name=tool).starters.add(Group.objects.create(name="Payers"))

    def provided(self, *answers: Answer, key: str = KEY) -> Run:
        """A run whose model is a provider's, which gives these answers."""
        provider = ProviderServer()
        self.patch.setenv(OPENAI.key_variable, key)
        self.patch.setenv(OPENAI.url_variable, provider.url + OPENAI.url_path)
        self.patch.setenv("NO_PROXY", "127.0.0.1")
        provider.answer(*answers)
        self.clerk.agent.driver, self.clerk.agent.model = "tool_calling", OPENAI.model
        self.clerk.agent.save()
        try:
            return self.clerk.drive(
                actions.start_run(actions.NewRun(self.clerk.agent.name, "Pay."), self.clerk.starter)
            )
        finally:
            provider.stop()

    def browser(self, user: User, **more: Any) -> Client:
        client = Client(**more)
        client.force_login(User.objects.get(pk=user.pk))
        return client


def body_of(approval: Approval) -> dict[str, Any]:
    return {"decision_id": "01900000-0000-7000-8000-000000000001", "version": approval.version,
            "action_digest": approval.action_digest,
            "type": "confirm" if approval.risk == "high" else "approve"}  # fmt: skip


@dataclass(frozen=True)
class Threat:
    number: int
    feared: str
    defence: str
    attack: Callable[[Scene], bool]
    switch_off: Callable[[Scene], None] = field(repr=False)


def tried(threats: list[Threat]) -> tuple[Any, Any]:
    """Two tests of each threat: that the attack fails, and that without the defence it succeeds."""
    each = pytest.mark.parametrize("threat", threats, ids=lambda threat: f"{threat.number}-{threat.attack.__name__}")

    @each
    def the_attack_fails(threat: Threat, scene: Scene) -> None:
        assert not threat.attack(scene)

    @each
    def without_the_defence_it_succeeds(threat: Threat, scene: Scene) -> None:
        threat.switch_off(scene)
        assert threat.attack(scene)

    return the_attack_fails, without_the_defence_it_succeeds


@pytest.fixture
def scene(
    clerk: Clerk, dana: User, otto: User, ada: User, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> Iterator[Scene]:
    yield Scene(clerk, dana, otto, ada, monkeypatch, settings)
    if append_only.missing(connection):
        append_only.install(connection)
