"""What is done with a token is recorded as such: the trail tells a program from the person at the console."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from agentapp import actions
from agentapp.models import Agent, Breaker, KillSwitch
from approvals.models import Approval, Event

pytestmark = pytest.mark.django_db


def actors(*types: str) -> set[str]:
    found = Event.objects.filter(type__in=types).values_list("actor", flat=True)
    assert found
    return set(found)


@pytest.fixture
def by_token(client_of: Any, mia: User) -> Any:
    return client_of(mia, "controls:operate")


def test_what_is_stopped(by_token: Any, support: Agent, mia: User) -> None:
    switch = by_token.post("/switches", {"scope": "agent", "key": "support", "reason": "It pays twice."}).data["id"]
    assert by_token.send("DELETE", f"/switches/{switch}").status == 200
    breaker = Breaker.objects.create(scope="tool", key="pay", state="open", opened_at=timezone.now(), failures=3)
    assert by_token.post(f"/breakers/{breaker.pk}/reset").status == 200
    assert actors("switch.engaged", "switch.released", "breaker.reset") == {f"user:{mia.pk}:mia (token test)"}


def test_what_becomes_of_runs(client_of: Any, support: Agent, sam: User) -> None:
    by_token = client_of(sam, "runs:create", "runs:read")
    run = by_token.post("/runs", {"agent": "support", "input": "Where is it?", "conversation": "t-7"}).data["id"]
    for step in ("pause", "resume", "take_over", "hand_back", "cancel"):
        assert by_token.post(f"/runs/{run}/{step}").status in (200, 202), step
    told = Event.objects.filter(run_id=run, actor_key=f"user:{sam.pk}")
    assert {"run.queued", "run.paused", "run.resumed", "run.taken_over", "run.handed_back"} <= {e.type for e in told}
    assert {event.actor for event in told} == {f"user:{sam.pk}:sam (token test)"}


def test_what_is_said_about_requests(client_of: Any, ask: Any, sam: User, dana: User) -> None:
    approval: Approval = ask(sam)
    dana_by_token = client_of(dana, "approvals:read", "approvals:comment")
    assert dana_by_token.post(f"/approvals/{approval.pk}/comments", {"text": "Looks fine."}).status in (200, 201)
    assert actors("approval.commented") == {f"user:{dana.pk}:dana (token test)"}


def test_the_same_person_at_the_console_is_told_apart(by_token: Any, support: Agent, mia: User) -> None:
    switch = by_token.post("/switches", {"scope": "all", "reason": "x"}).data["id"]
    actions.release_switch(KillSwitch.objects.get(pk=switch).pk, mia)
    assert actors("switch.released") == {f"user:{mia.pk}:mia"}
