import json
import re
import shlex
import uuid
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from agentapp.models import Agent, Message, Route, Run
from tests.agentapp.run_builder import make_agent

pytestmark = pytest.mark.django_db
SCRIPT = '[{"text": "Done."}]'


@pytest.fixture
def support(db: None) -> Agent:
    return make_agent()


@pytest.fixture
def sams(client: Client, sam: User, support: Agent) -> Client:
    client.force_login(sam)
    return client


def form(**values: Any) -> dict[str, Any]:
    return {"agent": "support", "input": "Where is my order?", "request_key": str(uuid.uuid4()), **values}


def key_of(page: str) -> str:
    found = re.search(r'name="request_key" value="([0-9a-f-]{36})"', page)
    assert found
    return found[1]


def test_a_run_is_started_and_shown(sams: Client, sam: User) -> None:
    values = form(route="refunds", customer="Ana", conversation="ticket-7")
    response = sams.post("/runs/new/", values)
    run = Run.objects.get()
    assert (response.status_code, response["Location"]) == (302, f"/runs/{run.pk}/chat/")
    assert (run.agent.name, run.input, run.route, run.customer) == ("support", "Where is my order?", "refunds", "Ana")
    assert (run.starter, run.script, run.request_key) == (sam, None, values["request_key"])
    assert Message.objects.get().conversation.key == "ticket-7"


def test_the_form_works_as_it_comes_from_the_page(sams: Client, sam: User) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(sam)
    page = strict.get("/runs/new/").content.decode()
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)
    assert token
    values = form(request_key=key_of(page))
    assert strict.post("/runs/new/", values).status_code == 403
    assert strict.post("/runs/new/", {**values, "csrfmiddlewaretoken": token[1]}).status_code == 302


def test_a_double_press_starts_one_run(sams: Client) -> None:
    values = form()
    first, second = sams.post("/runs/new/", values), sams.post("/runs/new/", values)
    assert first["Location"] == second["Location"]
    assert Run.objects.count() == 1


def test_each_form_has_a_key_of_its_own(sams: Client) -> None:
    keys = {key_of(sams.get("/runs/new/").content.decode()) for _ in range(2)}
    assert len(keys) == 2


def test_a_form_that_started_a_run_and_was_then_changed_can_be_sent_once_more(sams: Client) -> None:
    values = form()
    sams.post("/runs/new/", values)
    response = sams.post("/runs/new/", {**values, "input": "Something <b>else</b>."})
    page = response.content.decode()
    assert response.status_code == 422
    assert f'<a href="/runs/{Run.objects.get().pk}/">a run</a>' in page
    assert "Something &lt;b&gt;else&lt;/b&gt;." in page
    assert Run.objects.count() == 1
    assert (
        sams.post("/runs/new/", {**values, "input": "Something else.", "request_key": key_of(page)}).status_code == 302
    )
    assert Run.objects.count() == 2


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({"agent": "nobody"}, "agent-e", "There is no agent named &#x27;nobody&#x27;."),
        ({"agent": ""}, "agent-e", "Choose an agent."),
        ({"route": "elsewhere"}, "route-h", "has no route named &#x27;elsewhere&#x27;."),
        ({"input": "  \n "}, "input-h", "The input is empty."),
        ({"input": ""}, "input-h", "Write what the agent should do."),
        ({"input": "x" * 100_001}, "input-h", "at most 100000 characters"),
        ({"customer": "x" * 201}, "customer-h", "at most 200 characters"),
        ({"conversation": "x" * 201}, "conversation-h", "at most 200 characters"),
        ({"script": "[{"}, "script-h", "malformed or truncated"),
        ({"script": "{}"}, "script-h", "A script is a JSON list of replies."),
        ({"script": '[{"said": 1}]'}, "script-h", "said"),
        ({"script": '[{"text": "a", "text": "b"}]'}, "script-h", "appears twice"),
        ({"script": "[]"}, "script-h", "script: The value has less than 1 item."),
    ],
)
def test_a_mistake_is_told_at_its_field_and_nothing_is_lost(
    sams: Client, settings: Settings, values: dict[str, str], field: str, words: str
) -> None:
    settings.ALLOW_SCRIPTED_RUNS = True
    sent = form(customer="Ana <Pereira>", conversation="ticket-9") | values
    response = sams.post("/runs/new/", sent)
    page = response.content.decode()
    assert response.status_code == 422
    assert words in page.split(f'id="{field}"')[1].split("</div>")[0]
    assert not Run.objects.exists()
    assert key_of(page) == sent["request_key"]
    for kept in ("Ana &lt;Pereira&gt;", "ticket-9"):
        if not {"customer", "conversation"} & values.keys():
            assert kept in page


@pytest.mark.parametrize("key", ["", "not-a-key"])
def test_a_form_without_a_usable_key_is_refused(sams: Client, key: str) -> None:
    response = sams.post("/runs/new/", form(request_key=key))
    assert response.status_code == 422
    assert "The run was not started." in response.content.decode()
    assert not Run.objects.exists()


def test_a_switched_off_agent_is_neither_offered_nor_started(sams: Client, support: Agent) -> None:
    make_agent("research")
    support.enabled = False
    support.save()
    assert 'value="support"' not in sams.get("/runs/new/").content.decode()
    assert sams.post("/runs/new/", form()).status_code == 422


def test_without_any_agent_the_page_says_who_adds_one(sams: Client, support: Agent) -> None:
    support.enabled = False
    support.save()
    page = sams.get("/runs/new/").content.decode()
    assert "No agent can be started" in page
    assert "<textarea" not in page


def test_scripted_replies_are_taken_where_they_are_allowed(sams: Client, settings: Settings) -> None:
    settings.ALLOW_SCRIPTED_RUNS = True
    assert 'name="script"' in sams.get("/runs/new/").content.decode()
    sams.post("/runs/new/", form(script=SCRIPT))
    assert Run.objects.get().script == [{"text": "Done."}]


def test_scripted_replies_are_neither_offered_nor_taken_elsewhere(sams: Client, settings: Settings) -> None:
    settings.ALLOW_SCRIPTED_RUNS = False
    assert 'name="script"' not in sams.get("/runs/new/").content.decode()
    assert sams.post("/runs/new/", form(script=SCRIPT)).status_code == 422
    assert not Run.objects.exists()


@pytest.mark.parametrize("person", ["mia", "otto"])
def test_who_may_not_start_runs_is_told_so(client: Client, support: Agent, person: str, request: Any) -> None:
    client.force_login(request.getfixturevalue(person))
    page = client.get("/runs/new/")
    assert page.status_code == 403
    assert "You can view runs, not start them" in page.content.decode()
    assert client.post("/runs/new/", form()).status_code == 403
    assert client.post("/runs/new/parts/", form()).status_code == 403
    assert not Run.objects.exists()


def test_whoever_is_not_signed_in_is_sent_to_sign_in(client: Client, support: Agent) -> None:
    assert client.post("/runs/new/", form())["Location"].startswith("/login/")
    assert not Run.objects.exists()


def test_other_methods_are_refused(sams: Client) -> None:
    assert sams.put("/runs/new/").status_code == 405
    assert sams.get("/runs/new/parts/").status_code == 405


def test_agents_are_offered_with_what_they_are_for(sams: Client) -> None:
    make_agent("research", description="Reads & summarises.")
    page = sams.get("/runs/new/").content.decode()
    assert "Answers customers." in page
    assert "Reads &amp; summarises." in page
    assert '<optgroup label="support">' in page


def test_the_parts_follow_the_chosen_agent(sams: Client) -> None:
    research = make_agent("research")
    Route.objects.create(agent=research, name="deep")
    part = sams.post("/runs/new/parts/", form(agent="research", route="deep")).content.decode()
    assert '<option value="deep" selected>' in part
    assert "<html" not in part
    assert not Run.objects.exists()


def test_the_command_is_the_same_request_without_a_token(sams: Client) -> None:
    words = 'It\'s "broken"\n$(rm -rf /) `x`'
    part = sams.post("/runs/new/parts/", form(input=words, customer="Ana")).content.decode()
    command = unescape(part.split("<code>")[1].split("</code>")[0])
    arguments = shlex.split(command.replace("\\\n", ""))
    assert arguments[:2] == ["curl", "http://testserver/api/v1/runs"]
    assert arguments[3] == "Authorization: Bearer $COUNTERSIGN_TOKEN"
    assert json.loads(arguments[-1]) == {"agent": "support", "input": words, "customer": "Ana"}


def test_a_link_can_fill_the_form_in(sams: Client) -> None:
    page = sams.get("/runs/new/", {"input": "<b>Hi</b>", "customer": "Ana", "request_key": "x"}).content.decode()
    assert "&lt;b&gt;Hi&lt;/b&gt;" in page
    assert "<b>Hi</b>" not in page
    assert key_of(page)


def test_the_page_takes_no_query_for_an_agent(sams: Client) -> None:
    counts = []
    for size in (1, 12):
        for number in range(size):
            make_agent(f"agent-{size}-{number}")
        with CaptureQueriesContext(connection) as queries:
            sams.get("/runs/new/")
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 12


@pytest.mark.parametrize("field", ["input", "customer", "conversation"])
def test_what_stands_for_something_hidden_is_not_sent_as_if_it_were_real(sams: Client, field: str) -> None:
    pasted = f"Pay {'\u2022' * 6} back"
    refused = sams.post("/runs/new/", form(**{field: pasted}))
    assert (refused.status_code, "still has a masked part" in refused.text, pasted in refused.text) == (422, True, True)
    assert not Run.objects.exists()


@pytest.mark.parametrize("path", ["/runs/new/", "/runs/new/parts/"])
def test_what_no_browser_sends_starts_nothing(sams: Client, path: str) -> None:
    for name in ("agent", "input", "route", "customer", "conversation", "title", "request_key"):
        assert sams.post(path, form(**{name: "\0"})).status_code < 500, name
        assert not Run.objects.exists()
