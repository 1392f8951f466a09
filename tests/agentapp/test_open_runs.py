"""Nobody alone fills the queue: a person has so many runs under way and no more, whichever way they start them."""

import uuid
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from agentapp import actions, open_runs
from agentapp.models import Run
from approvals.models import Event
from tests.agentapp.run_builder import make_agent
from tests.conftest import says

pytestmark = pytest.mark.django_db
MOST = 3


@pytest.fixture(autouse=True)
def _three_at_once(settings: Any, agent: Any) -> None:
    settings.OPEN_RUNS_PER_PERSON = MOST


@pytest.fixture
def agent() -> Any:
    return make_agent()


def start(user: User, **more: Any) -> Run:
    return actions.start_run(actions.NewRun(agent="support", input="Hello?", **more), user)


def open_up_to_the_limit(user: User) -> list[Run]:
    return [start(user) for _ in range(MOST)]


def test_one_more_is_refused_and_changes_nothing(sam: User) -> None:
    open_up_to_the_limit(sam)
    events = Event.objects.count()
    with pytest.raises(
        actions.Refused, match=r"^3 of your runs have not ended, as many as one person may have\."
    ) as at:
        start(sam)
    assert (at.value.code, at.value.status) == ("too_many_runs", 429)
    assert (Run.objects.count(), Event.objects.count()) == (MOST, events)


def test_others_are_not_held_up(sam: User, dana: User) -> None:
    open_up_to_the_limit(sam)
    dana.groups.set(sam.groups.all())
    assert start(User.objects.get(pk=dana.pk)).starter == dana


def test_once_one_has_ended_the_next_may_start_at_once(sam: User) -> None:
    first, *_ = open_up_to_the_limit(sam)
    with pytest.raises(actions.Refused):
        start(sam)
    actions.cancel_run(first.pk, sam)
    assert start(sam).pk
    with pytest.raises(actions.Refused):
        start(sam)


def test_the_same_request_again_is_answered_as_before(sam: User) -> None:
    key = str(uuid.uuid4())
    first = start(sam, request_key=key)
    start(sam)
    start(sam)
    assert start(sam, request_key=key) == first


def test_mocked_runs_wait_for_nobody_and_do_not_count(sam: User, ada: User) -> None:
    for _ in range(MOST + 1):
        start(ada, mocks={}, script=[says("Done.")])
    assert start(ada).pk


def test_neither_do_runs_that_agents_ask_for(sam: User) -> None:
    first = start(sam)
    Run.objects.filter(pk__in=[start(sam).pk, start(sam).pk]).update(parent=first)
    cache.clear()
    assert start(sam).pk


def test_a_message_that_a_person_answers_starts_nothing_and_is_kept(sam: User) -> None:
    first = start(sam, conversation="ticket-7")
    actions.take_over_run(first.pk, sam)
    start(sam)
    start(sam)
    said = actions.start_run_once(actions.NewRun("support", "Are you there?", conversation="ticket-7"), sam)
    assert said.kept
    with pytest.raises(actions.Refused):
        start(sam)


def test_it_is_counted_once_in_a_while(sam: User) -> None:
    start(sam)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        open_runs.limit(sam)
    assert len(queries) == 0
    cache.clear()
    with CaptureQueriesContext(connection) as queries:
        open_runs.limit(sam)
    assert len(queries) == 1


def test_zero_is_any_number(sam: User, settings: Any) -> None:
    settings.OPEN_RUNS_PER_PERSON = 0
    for _ in range(MOST + 2):
        start(sam)


def test_the_form_says_so_and_keeps_what_was_typed(client: Client, sam: User) -> None:
    open_up_to_the_limit(sam)
    client.force_login(sam)
    typed = {"agent": "support", "input": "Where is my parcel?", "request_key": str(uuid.uuid4())}
    response = client.post("/runs/new/", typed)
    assert response.status_code == 422
    assert "3 of your runs have not ended" in response.text
    assert "Where is my parcel?" in response.text
