"""Everything htmx would post, posted as a browser without JavaScript does: each gets a page or leads to one."""

from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agentapp import actions
from agentapp.models import Run
from approvals.models import Approval

from .conftest import make_agent, make_tool

pytestmark = pytest.mark.django_db
Waiting = Callable[..., Approval]


@dataclass
class Press:
    """One button of a form that htmx would send: where it goes without JavaScript, and what it sends."""

    name: str
    action: str
    fields: dict[str, list[str]]


@dataclass
class Form:
    action: str
    has_htmx: bool
    fields: dict[str, list[str]] = field(default_factory=dict)
    presses: list[tuple[str, str, str, bool]] = field(default_factory=list)

    def add(self, name: str, value: str) -> None:
        if name:
            self.fields.setdefault(name, []).append(value)


class Forms(HTMLParser):
    """The forms of a page, their controls as they stand, and their buttons."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.forms: dict[str, Form] = {}
        self._open, self._text, self._select = "", "", ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._open = given.get("id") or f"form-{len(self.forms)}"
            if given.get("method") == "post":
                self.forms[self._open] = Form(given["action"], "hx-post" in given)
        form = self.forms.get(given.get("form", self._open))
        if form is None or "disabled" in given:
            return
        name, value, kind = given.get("name", ""), given.get("value", ""), given.get("type", "")
        if tag == "button" and kind == "submit":
            form.presses.append((given.get("formaction", form.action), name, value, "hx-post" in given))
        elif tag == "input" and (kind not in ("checkbox", "radio") or "checked" in given):
            form.add(name, value)
        elif tag == "textarea":
            self._text = name
            form.add(name, "")
        elif tag == "select":
            self._select = name
        elif tag == "option" and "selected" in given:
            form.add(self._select, value)

    def handle_data(self, data: str) -> None:
        if self._text:
            self.forms[self._open].fields[self._text][-1] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self._text = ""
        if tag == "form":
            self._open = ""

    @property
    def sent_by_htmx(self) -> list[Press]:
        found = []
        for form in self.forms.values():
            for action, name, value, has_htmx in form.presses:
                if has_htmx or form.has_htmx:
                    # A button without a name is named after the last part of its address.
                    found.append(
                        Press(
                            name or action.split("/")[-2], action, {**form.fields, **({name: [value]} if name else {})}
                        )
                    )
        return found


def signed_in(user: User) -> Client:
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    return client


def inbox(waiting: Waiting, dana: User, client: Client) -> str:
    waiting()
    return client.get("/inbox/").content.decode()


def claimed(waiting: Waiting, dana: User, client: Client) -> str:
    actions.claim_request(waiting().pk, dana)
    return client.get("/inbox/").content.decode()


def request(waiting: Waiting, dana: User, client: Client) -> str:
    return client.get(f"/approvals/{waiting(secret_fields=['reason']).pk}/").content.decode()


def edited(waiting: Waiting, dana: User, client: Client) -> str:
    """With a change to undo."""
    approval = waiting()
    form = Forms(client.get(f"/approvals/{approval.pk}/").content.decode()).forms["decide"]
    return client.post(f"/approvals/{approval.pk}/draft/", {**form.fields, "arg.amount": "100"}).content.decode()


def listed(waiting: Waiting, dana: User, client: Client) -> str:
    """With lists whose rows come and go."""
    lines = {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}}
    tags = {"type": "array", "items": {"type": "string"}}
    tool = make_tool()
    tool.input_schema = {"type": "object", "properties": {"lines": lines, "tags": tags}}
    tool.locked_fields = []
    tool.save()
    approval = waiting(arguments={"lines": [{"sku": "K1"}, {"sku": "K2"}], "tags": ["a", "b"]})
    return client.get(f"/approvals/{approval.pk}/").content.decode()


@pytest.mark.parametrize(
    ("made", "buttons"),
    [
        (inbox, {"claim"}),
        (claimed, {"release"}),
        (request, {"view", "reveal"}),
        (edited, {"view", "restore"}),
        (listed, {"view", "add", "remove"}),
    ],
)
def test_what_htmx_posts_works_as_a_plain_post(
    waiting: Waiting, dana: User, made: Callable[[Waiting, User, Client], str], buttons: set[str]
) -> None:
    client = signed_in(dana)
    presses = Forms(made(waiting, dana, client)).sent_by_htmx

    assert {press.name for press in presses} >= buttons
    for press in presses:
        answer = client.post(press.action, press.fields, follow=True)
        assert answer.status_code == 200, f"{press}: {answer.status_code}"
        assert "<main" in answer.content.decode(), f"{press} answers with a part of a page"


def test_a_run_is_started_by_a_plain_post(sam: User) -> None:
    make_agent(make_tool())
    client = signed_in(sam)
    form = Forms(client.get("/runs/new/").content.decode()).forms["start"]
    typed = {**form.fields, "agent": ["support"], "input": ["Hello."]}
    answers = {name: client.post(action, {**typed, name: [value]}) for action, name, value, _ in form.presses}

    assert "<main" in answers["choose"].content.decode()
    run = Run.objects.get()
    assert answers[""]["Location"] == f"/runs/{run.pk}/"
