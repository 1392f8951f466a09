"""Seventy secrets and personal values, planted wherever the work has such values, reach nobody without the right.

Anything else that leaves the system by itself belongs in `sent_out`, and a new page in the crawl.
"""

import html
import io
import json
import logging
import re
import urllib.parse
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.admin import site
from django.contrib.auth.models import Permission, User
from django.core import mail
from django.db.models import Q
from django.test import Client
from django.utils.module_loading import import_string

from agentapp import auth, logs, webhooks
from agentapp.models import Conversation, Run, Tool, ToolExecution, WebhookDelivery
from approvals import ledger, notify, sending
from approvals.models import Approval, Channel, Event, Notification
from approvals.proof import checkpoints, export, inclusion, receipts
from tests.agentapp.telemetry.conftest import Collected
from tests.agentapp.webhooks.conftest import endpoint, receiver  # noqa: F401
from tests.conftest import call, calls, install_tools, make_user, says
from tests.privacy import planted_tools
from tests.privacy.crawling import crawled, read
from tests.privacy.values import (
    ARGUMENTS,
    IN_ERROR,
    IN_MEMO,
    IN_PROMPT,
    IN_RESULT,
    PLANTED,
    RESULTS,
    SECRETS,
    SEEN,
    found_in,
)
from tests.security import surface
from tests.slack_api import Slack, serving
from tests.webhook_receiver import Receiver


def test_seventy_values_are_planted_and_each_is_another() -> None:
    assert len(PLANTED) == len(set(PLANTED)) == 70


def test_what_is_cut_is_found_too() -> None:
    assert [found_in(f"about {value[:12]}…") == [] for value in PLANTED] == [False] * 70


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """What the process logs at DEBUG, as its handler writes it: for people and for programs."""
    stream, root = io.StringIO(), logging.getLogger()
    handlers = [as_configured(form, stream) for form in ("line", "json")]
    before = root.level
    for each in handlers:
        root.addHandler(each)
    root.setLevel(logging.DEBUG)
    yield stream
    for each in handlers:
        root.removeHandler(each)
    root.setLevel(before)


def as_configured(form: str, stream: io.StringIO) -> logging.Handler:
    """The handler from the settings, writing here."""
    said = logs.configuration("DEBUG", form)
    console, handler = said["handlers"]["console"], logging.StreamHandler(stream)
    handler.setFormatter(import_string(said["formatters"][console["formatter"]]["()"])())
    for name in console["filters"]:
        handler.addFilter(import_string(said["filters"][name]["()"])())
    return handler


@pytest.fixture
def slack(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slack]:
    with serving(monkeypatch) as there:
        yield there


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A service that Apprise notifies."""
    there = Receiver()
    monkeypatch.setenv("CREDENTIAL_CHAT", there.url.replace("http://", "json://"))
    yield there
    there.close()


@pytest.fixture
def reader(roles: Any) -> User:
    """A person who may look at everything except personal values."""
    user = make_user("Rhea Reader")
    user.is_staff = True
    user.save()
    looks = Q(codename__startswith="view_") | Q(codename="try_tool")
    user.user_permissions.set(Permission.objects.filter(looks))
    return user


@pytest.fixture
def runs(clerk: Any, settings: Any, dana: User, endpoint: Any, logged: Any) -> list[Run]:  # noqa: F811
    """Runs with everything planted in them: one that waits, one that was approved and ended, one whose tools fail."""
    planted_tools.PERSON.clear()
    planted_tools.PERSON.update({**RESULTS, "notes": " ".join(IN_RESULT)})
    planted_tools.SEEN.update(SEEN)
    planted_tools.FAILURE[:] = IN_ERROR
    settings.TOOL_MODULES = ["tests.privacy.planted_tools"]
    clerk.agent.tools.set(install_tools("tests.privacy.planted_tools").values())
    Channel.objects.create(name="desk", kind="email", config={"to": ["desk@here.example"]})
    Channel.objects.create(name="memory", kind="memory", config={})
    Channel.objects.create(name="slack", kind="slack", config={"credential": "SLACK", "channel": "C0123456789"})
    Channel.objects.create(name="chat", kind="apprise", config={"credential": "CHAT"})
    arguments = {**ARGUMENTS, **SECRETS, "memo": " ".join(IN_MEMO)}
    said = " and ".join([*ARGUMENTS.values(), *IN_PROMPT])
    steps = [
        calls(call("f", "find_person", nickname=ARGUMENTS["nickname"]), text=f"I look for {said}."),
        calls(call("e", "fail_for", name=ARGUMENTS["name"]), call("c", "crash_for", name=ARGUMENTS["name"])),
        calls(call("a", "enroll", **arguments), text=f"I enroll {said}."),
        says(f"Done for {said}."),
    ]
    prompt = f"Enroll the one with {' '.join(IN_PROMPT)}."
    waiting = clerk.run(*steps, input=prompt)
    ended = clerk.run(*steps, input=prompt, conversation="ticket-9", customer="40117")
    [approval] = clerk.open(ended)
    clerk.decide(approval, dana, message=f"Fine for {' '.join(IN_PROMPT)}.")
    ended = clerk.drive(ended)
    assert (waiting.state, ended.state) == ("waiting", "succeeded")
    return [waiting, ended]


def test_they_are_where_the_work_needs_them(runs: list[Run]) -> None:
    """Otherwise nothing below could fail."""
    row = ToolExecution.objects.filter(name="enroll").latest("proposed_at")
    assert set(json.loads(row.arguments_text).values()) >= {*ARGUMENTS.values(), *SECRETS.values()}
    assert RESULTS["name"] in ToolExecution.objects.filter(name="find_person").latest("proposed_at").result_text
    assert IN_PROMPT[0] in runs[0].input
    approval = Approval.objects.get(state="pending")
    assert SEEN["city"] in approval.title
    assert [value for value in SEEN.values() if value not in approval.snapshot_text + approval.preview_text] == []


def test_whoever_decides_sees_what_they_decide_about(client: Client, runs: list[Run], dana: User) -> None:
    approval = Approval.objects.get(state="pending")
    client.force_login(dana)
    page = client.get(f"/approvals/{approval.pk}/").content.decode()
    assert ARGUMENTS["name"] in html.unescape(page)
    assert IN_MEMO[0] in html.unescape(page)
    assert SECRETS["pin"] not in page


def test_none_stands_in_any_event(runs: list[Run]) -> None:
    assert [(event.type, found_in(event.body)) for event in Event.objects.all() if found_in(event.body)] == []
    assert ledger.verify()[1] is None


def test_none_is_logged(runs: list[Run], logged: io.StringIO) -> None:
    logging.getLogger("agentapp").warning("About %s", " ".join(IN_PROMPT))
    try:
        raise RuntimeError(" ".join(IN_ERROR))
    except RuntimeError:
        logging.getLogger("agentapp").exception("It failed")
    assert logged.getvalue().count("RuntimeError: [redacted]") == 2
    assert found_in(logged.getvalue()) == []


def test_none_is_sent_out(runs: list[Run]) -> None:
    sent = list(sent_out())
    assert len(sent) > 4
    assert [found_in(text) for text in sent if found_in(text)] == []


def test_none_is_told_to_a_chat(clerk: Any, runs: list[Run], dana: User, slack: Slack, chat: Receiver) -> None:
    """Pending requests and their outcomes, as sent to Slack and to a service behind Apprise."""
    send_all()
    [approval] = clerk.open(runs[0])
    clerk.decide(approval, dana, message=f"Fine for {' '.join(IN_PROMPT)} and {ARGUMENTS['name']}.")
    clerk.drive(runs[0])
    send_all()
    assert {method for method, _ in slack.asked} == {"chat.postMessage", "chat.update"}
    sent = [json.dumps(content, ensure_ascii=False) for _, content in slack.asked]
    sent += [one.body.decode() for one in chat.received]
    assert len(chat.received) > 1
    assert all("enroll" in text for text in sent)
    assert [found_in(text) for text in sent if found_in(text)] == []


def send_all() -> None:
    for key in Notification.objects.exclude(state="sent").order_by("created_at").values_list("pk", flat=True):
        notify.send(key)


def sent_out() -> Iterator[str]:
    """Everything that leaves by itself: mail, chat, webhooks; and what is passed on of the ledger."""
    send_all()
    for message in mail.outbox:
        yield f"{message.subject}\n{message.body}"
    for row in Notification.objects.select_related("approval", "channel").filter(channel__kind="memory"):
        told = sending.message_of(row)
        yield f"{told.title}\n{told.body}"
    webhooks.collect()
    yield from WebhookDelivery.objects.values_list("body", flat=True)
    for approval in Approval.objects.all():
        yield json.dumps(receipts.receipt(approval), ensure_ascii=False)
    checkpoints.make()
    for event in Event.objects.filter(approval_id__isnull=False):
        yield json.dumps(inclusion.inclusion(event.pk), ensure_ascii=False)
    yield b"".join(export.lines("system")).decode()


@pytest.mark.parametrize("with_content", [True, False])
def test_none_is_in_a_span_nor_in_the_file_of_a_trace(
    client: Client, runs: list[Run], reader: User, settings: Any, with_content: bool
) -> None:
    settings.OTEL_CONTENT = with_content
    collected = Collected().export(*(run for run in runs if run.is_final))
    _, secret = auth.issue_token(reader, "reading", ["runs:read"], "test")
    client.force_login(reader)
    files = [read(client.get(f"/runs/{run.pk}/otel.json")) for run in runs]
    token = {"Authorization": f"Bearer {secret}"}
    files += [read(Client().get(f"/api/v1/runs/{run.pk}/otel", headers=token)) for run in runs]
    assert all(("I enroll" in text) == with_content for text in [collected.said(), *files])
    assert [found_in(text) for text in [collected.said(), *files] if found_in(text)] == []


def test_none_is_in_a_span_for_those_who_may_see_it_on_pages(
    client: Client, runs: list[Run], dana: User, settings: Any
) -> None:
    settings.OTEL_CONTENT = True
    client.force_login(dana)
    assert found_in(read(client.get(f"/runs/{runs[1].pk}/otel.json"))) == []


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_none_is_in_an_exported_trail(client: Client, runs: list[Run], reader: User, kind: str) -> None:
    client.force_login(reader)
    text = read(client.post(f"/audit/export/{kind}/", {"q": ""}))
    assert str(runs[1].pk) in text
    assert found_in(text) == []


def test_none_is_in_the_figures_for_prometheus(client: Client, runs: list[Run], settings: Any) -> None:
    settings.METRICS_TOKEN = "scrape"
    text = read(client.get("/metrics", headers={"Authorization": "Bearer scrape"}))
    assert "countersign_" in text
    assert found_in(text) == []


def test_none_stands_on_pages_about_what_was_done(client: Client, runs: list[Run], reader: User) -> None:
    """The trail, requests as they were seen, insights, tools, changes, and what today's rules would have stopped."""
    client.force_login(reader)
    begin = ["/audit/", "/insights/", "/insights/cost/", "/insights/reliability/", "/tools/", "/changes/"]
    begin += [
        "/changes/what-if/?since=24h",
        *(f"/tools/{name}/" for name in Tool.objects.values_list("name", flat=True)),
    ]
    for event in Event.objects.order_by("seq"):
        begin += [f"/audit/events/{event.pk}{more}" for more in ("/", "/row/", ".json")]
    for approval in Approval.objects.all():
        begin.append(f"/audit/approvals/{approval.pk}/as-seen/")
        begin += [f"{begin[-1]}?decision={one.pk}" for one in approval.decisions.all()]
    for call_ in ToolExecution.objects.select_related("tool"):
        begin.append(f"/tools/{call_.name}/try/?from={call_.pk}")
    begin += [f"/audit/?{urllib.parse.urlencode({'q': value})}" for value in ("did:ran", "did:approved")]
    found = crawled(client, begin, follow=r"^/(audit|insights|tools|changes)/")
    assert found.seen >= set(begin)
    assert {"insights/<slug:slug>.csv", "audit/proof/", "changes/"} <= set(found.answers)
    assert found.leaks == {}


def test_none_is_put_into_the_form_of_a_trial_by_a_post(client: Client, runs: list[Run], reader: User) -> None:
    done = ToolExecution.objects.filter(name="enroll").latest("proposed_at")
    client.force_login(reader)
    answer = client.post(f"/tools/enroll/try/?from={done.pk}", {})
    assert found_in(read(answer)) == []


def test_none_is_in_what_answers_a_post_of_whoever_may_only_look(client: Client, runs: list[Run], reader: User) -> None:
    client.force_login(reader)
    approval = Approval.objects.get(state="pending")
    parts = ["draft", "decide", "comments", "ask", "reveal", "claim", "sign"]
    urls = [f"/approvals/{approval.pk}/{part}/" for part in parts] + [f"/runs/{runs[0].pk}/chat/draft/"]
    typed = {"type": "edit", "message": "x", "text": "x", "arg.name": "Typed Name", "shown": ["arg.name"]}
    answered = [(url, client.post(url, data)) for url in urls for data in ({}, typed)]
    assert any('id="decide"' in read(answer) or "approval" in read(answer) for _, answer in answered)
    assert {url: found_in(read(answer)) for url, answer in answered if found_in(read(answer))} == {}


def test_none_is_found_by_whoever_may_not_read_it(client: Client, runs: list[Run], reader: User) -> None:
    client.force_login(reader)
    for value in (IN_PROMPT[0], IN_PROMPT[0][:9], ARGUMENTS["name"], ARGUMENTS["name"][:6], IN_ERROR[0], IN_RESULT[0]):
        words = urllib.parse.quote(value)
        found = read(client.get(f"/runs/{runs[1].pk}/?q={words}"))
        assert "Nothing found" in found, value
        for url in ("/search/?q=", "/inbox/?q=", "/runs/?error=", "/audit/?q="):
            assert linked(read(client.get(url + words))) == set(), (url, value)


def linked(text: str) -> set[str]:
    """The runs and requests that a page leads to."""
    main = text[text.find("<main") :]
    return set(re.findall(r"/(?:runs|approvals)/[0-9a-f-]{36}/", main))


def of_every_kind(run: Run) -> list[str]:
    """An address of each pattern, about this run where possible; where no such row exists, about none."""
    approval = Approval.objects.get(run_id=run.pk)
    event = Event.objects.filter(approval_id=approval.pk).latest("seq")
    none = ("confirmation_id", "conversation_id", "decision_id", "delegation_id", "eval_run_id", "grant_id", "key",
            "link_id", "other_id", "suite", "switch_id", "token_id", "breaker_id", "view_id")  # fmt: skip
    values = dict.fromkeys(none, uuid.uuid4()) | {
        "run_id": run.pk, "approval_id": approval.pk, "execution_id": approval.execution_id, "event_id": event.pk,
        "reference": approval.reference, "name": "enroll", "word": "agent", "kind": "jsonl", "slug": "decisions",
        "step": 3, "call": 0, "part": "arguments", "app_label": "agentapp", "provider_id": "corp", "signed": "x",
        "session_id": 1, "pk": 1, "uidb36": 1, "id": 1, "url": "x", "content_type_id": 1, "object_id": 1,
    }  # fmt: skip
    world = surface.World({}, {name: str(value) for name, value in values.items()})
    return [surface.address(route, world) for route in surface.routes() if not route.startswith(surface.API)]


def test_none_stands_on_any_page_for_whoever_may_only_look(client: Client, runs: list[Run], reader: User) -> None:
    list(sent_out())
    client.force_login(reader)
    begin = [f"/runs/{run.pk}/" for run in runs]
    begin += [f"/approvals/{key}/" for key in Approval.objects.values_list("pk", flat=True)]
    begin += [f"/runs/{run.pk}/?step={step}" for run in runs for step in (1, 2, 3, 4)]
    found = crawled(client, [*begin, *of_every_kind(runs[1]), "/runs/", "/inbox/", "/admin/", "/"])
    assert found.leaks == {}
    assert [page for page in of_rows() if 200 not in found.answers[page]] == []


def of_rows() -> list[str]:
    """The admin's pages of one row, for every model that has any."""
    there = [model._meta for model in site._registry if model._default_manager.exists()]
    assert {"run", "step", "toolexecution", "message", "notification", "webhookdelivery"} <= {
        m.model_name for m in there
    }
    return [
        f"admin/{m.app_label}/{m.model_name}/<path:object_id>/{page}/" for m in there for page in ("change", "history")
    ]


def test_none_is_answered_by_the_api_to_whoever_may_only_look(client: Client, runs: list[Run], reader: User) -> None:
    scopes = [scope for scope in auth.SCOPES if scope.endswith(":read")]
    _, secret = auth.issue_token(reader, "reading", scopes, "test")
    known = {
        "run_id": [str(run.pk) for run in runs],
        "approval_id": [str(key) for key in Approval.objects.values_list("pk", flat=True)],
        "execution_id": [str(key) for key in ToolExecution.objects.values_list("pk", flat=True)],
        "conversation_id": [str(key) for key in Conversation.objects.values_list("pk", flat=True)],
        "name": list(Tool.objects.values_list("name", flat=True)),
    }
    paths = client.get("/api/v1/openapi.json").json()["paths"]
    asked = 0
    for path, methods in paths.items():
        named = re.findall(r"{(\w+)}", path)
        if "get" not in methods or "stream" in path or any(name not in known for name in named):
            continue
        for value in known[named[0]] if named else [""]:
            url = re.sub(r"{\w+}", value, path)
            answer = client.get(url, headers={"Authorization": f"Bearer {secret}"})
            asked += answer.status_code == 200
            assert found_in(json.dumps(json.loads(read(answer)), ensure_ascii=False)) == [], url
    assert asked > 15
