"""Forking, replaying and comparing runs over HTTP."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User

from agentapp.models import Run, ToolExecution
from tests.agentapp.api.conftest import ApiClient
from tests.conftest import Clerk
from tests.forks import DONE, LOOK, PAY

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def paid(clerk: Clerk, dana: User) -> Run:
    run = clerk.run(LOOK, PAY, DONE)
    clerk.decide(clerk.open(run)[0], dana)
    return clerk.drive(run)


@pytest.fixture
def api(client_of: Callable[..., ApiClient]) -> Callable[[User], ApiClient]:
    return lambda user: client_of(user, "runs:create", "runs:read")


def finish(clerk: Clerk, run: Run) -> None:
    for _ in range(20):
        if clerk.drive(run).is_final:
            return


def test_a_run_is_forked_once_for_each_key(api, clerk, paid, sam):
    body = {"step": 3, "instructions": "Be brief.", "settings": {"temperature": 0}}
    answers = [api(sam).post(f"/runs/{paid.pk}/fork", body, **{"Idempotency-Key": "k"}) for _ in range(2)]
    assert [answer.status for answer in answers] == [201, 201]
    data = answers[0].data
    assert (data["retry_of"], data["steps_kept"], data["branch"], data["mocked"]) == (str(paid.pk), 2, "fork", False)
    assert data["changed"] == ["instructions", "model_settings"]
    assert answers[1].data["id"] == data["id"]


def test_a_call_is_forked_with_other_arguments(api, clerk, paid, sam):
    body = {"step": 2, "call": 0, "args": {"account": "ana", "amount": 7}, "sandbox": True}
    data = api(sam).post(f"/runs/{paid.pk}/fork", body).data
    run = Run.objects.get(pk=data["id"])
    finish(clerk, run)
    assert (data["calls_kept"], data["mocked"], data["changed"]) == (0, True, ["arguments"])
    assert ToolExecution.objects.get(run=run).args["amount"] == 7


def test_a_replay_and_its_comparison(api, clerk, paid, sam):
    begun = api(sam).post(f"/runs/{paid.pk}/replay", {})
    assert (begun.status, begun.data["branch"], begun.data["mocked"]) == (201, "replay", True)
    finish(clerk, Run.objects.get(pk=begun.data["id"]))
    found = api(sam).get(f"/runs/{paid.pk}/comparison/{begun.data['id']}").data
    assert (found["same"], found["calls"]["same"], found["differs"]) == (True, 2, [])
    assert [step["kind"] for step in found["steps"]] == ["same", "same", "same"]
    call = found["steps"][1]["calls"][0]
    assert (call["name"], call["was"]) == ("pay", str(clerk.execution(paid, "p").pk))


def test_a_run_lists_its_forks_and_replays(api, clerk, paid, sam):
    for path in ("fork", "replay"):
        api(sam).post(f"/runs/{paid.pk}/{path}", {})
    api(sam).post(f"/runs/{paid.pk}/retry", {"first": 3})
    listed = api(sam).get(f"/runs/{paid.pk}/branches").data["items"]
    assert [(one["branch"], one["mocked"]) for one in listed] == [("replay", True), ("fork", False)]


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"step": 0}, 422, "step"),
        ({"step": 9}, 422, "step"),
        ({"model": "nonsense"}, 422, "model"),
        ({"step": 2, "call": 0, "args": {"account": "ana"}}, 422, "args/amount"),
        ({"step": 2, "args": {"account": "ana", "amount": 7}}, 422, "call"),
        ({"settings": {"warmth": 1}}, 422, "settings"),
        ({"without_rules": ["a"]}, 422, "sandbox"),
        ({"colour": "red"}, 422, "colour"),
    ],
)
def test_what_cannot_be_is_refused_with_its_field(api, paid, sam, body, status, field):
    refused = api(sam).post(f"/runs/{paid.pk}/fork", body)
    assert (refused.status, refused.data["field"]) == (status, field)
    assert Run.objects.count() == 1


def test_nobody_else_is_told_that_the_run_exists(api, paid, otto):
    for path in ("fork", "replay"):
        assert api(otto).post(f"/runs/{paid.pk}/{path}", {}).status == 404
    assert api(otto).get(f"/runs/{paid.pk}/branches").status == 404
    assert api(otto).get(f"/runs/{paid.pk}/comparison/{paid.pk}").status == 404
