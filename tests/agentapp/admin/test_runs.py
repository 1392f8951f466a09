"""Records of runs can be viewed, without their secrets, and not changed."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from agentapp import conversations, executions, runs
from agentapp.branching import Branch
from agentapp.messages import Reply, ToolCall
from agentapp.models import Agent, Conversation, Message, Run, Step, Tool, ToolExecution, ToolSource
from approvals import ledger
from approvals.models import PlannedCall
from tests.admin_pages import address
from tests.conftest import Clerk, says
from tests.plans import a_plan, let_plan, planned

pytestmark = pytest.mark.django_db
SECRET, DIGEST = "hunter2", "d1935" * 12


@pytest.fixture
def staff(client: Client, ada: User) -> Client:
    """One of each record; the call's arguments hold a secret wherever they are stored."""
    now, arguments = timezone.now(), f'{{"pin":"{SECRET}","to":"<b>7</b>"}}'
    source = ToolSource.objects.create(name="shop", location="shop.tools")
    tool = Tool.objects.create(name="pay", source=source, version="1", secret_fields=["pin"])
    agent = Agent.objects.create(name="support")
    call = ToolCall("call_1", "pay", arguments)
    with ledger.transaction():
        conversation = conversations.find_or_open(agent, "ticket 7", "grace")
        script = [{"tool_calls": [{"id": "call_1", "name": "pay", "arguments": arguments}]}]
        opening = {"text": "", "id": "call_1", "name": "pay", "arguments": arguments, "typed": {"pin": SECRET}}
        start = runs.Start(
            agent, {}, "pay", "pay", None, conversation=conversation, script=script, request_digest=DIGEST,
            branch=Branch("fork", {}, opening=opening),
        )  # fmt: skip
        run = runs.create(start)
        conversations.add(conversation, run, "user", "pay <script>alert(1)</script>")
    claimed = runs.claim(run.pk)
    assert claimed is not None
    assert claimed.lease_token is not None
    reply = Reply(tool_calls=(call,), provider_parts=[{"arguments": arguments}])
    with ledger.transaction():
        step = runs.record_step(claimed, claimed.lease_token, reply, ["pay"], now, now)
        assert step is not None
        proposal = executions.Proposal(call, tool, {}, arguments, allowed_by="rule:x")
        [execution] = executions.propose(claimed, step, [proposal])
        executions.begin(execution, arguments, "key", "rule:x")
    ToolExecution.objects.update(result_text=f'{{"said":"{SECRET} was right"}}', metadata={"sent": {"pin": SECRET}})
    client.force_login(ada)
    return client


@pytest.mark.parametrize("model", [Run, Step, ToolExecution, Conversation, Message])
def test_a_record_can_be_looked_at_and_not_changed(staff: Client, ada: User, model: Any) -> None:
    ada.is_superuser = True
    ada.save()
    row = model.objects.get()
    before = list(model.objects.values())
    assert staff.get(address(model, "changelist")).status_code == 200
    page = staff.get(address(model, "change", row.pk))
    text = page.content.decode()
    assert SECRET not in text
    assert DIGEST not in text
    assert "<script>alert" not in text
    assert "<b>7</b>" not in text
    assert 'name="_save"' not in text
    selected = {"action": "delete_selected", "_selected_action": [str(row.pk)], "post": "yes"}
    for url in (
        address(model, "add"),
        address(model, "change", row.pk),
        address(model, "delete", row.pk),
        address(model, "changelist"),
    ):
        assert staff.post(url, selected).status_code == 403, url
    assert list(model.objects.values()) == before


def test_arguments_are_shown_with_their_secrets_masked(staff: Client) -> None:
    text = staff.get(address(ToolExecution, "change", ToolExecution.objects.get().pk)).content.decode()
    assert text.count("••••••") == 4
    assert "&lt;b&gt;7&lt;/b&gt;" in text


def test_a_ruling_and_a_result_are_read_line_by_line(staff: Client) -> None:
    ToolExecution.objects.update(ruling={"verdict": "ask", "reason": "Refunds need one person."})
    page = staff.get(address(ToolExecution, "change", ToolExecution.objects.get().pk)).content.decode()
    for line in ("&quot;verdict&quot;: &quot;ask&quot;", "&quot;reason&quot;: &quot;Refunds need one person.&quot;"):
        assert f"<br>  {line}" in page


def test_the_calls_of_a_plan_are_listed_without_their_arguments(
    clerk: Clerk, settings: Any, dana: User, ada: User, client: Client
) -> None:
    let_plan(clerk, settings)
    run = clerk.run(a_plan(planned("label", text=SECRET), planned("label", text="settled")), says("done"))
    clerk.decide(clerk.open(run)[0], dana)
    clerk.drive(run)
    ada.is_superuser = True
    ada.save()
    client.force_login(ada)
    planned_call = PlannedCall.objects.order_by("position")[0]
    assert SECRET in planned_call.arguments_text
    page = client.get(address(PlannedCall, "change", planned_call.pk))
    assert (page.status_code, SECRET in page.content.decode()) == (200, False)


def test_the_list_says_which_runs_are_mocked_and_shows_those_or_the_others(staff: Client) -> None:
    agent = Agent.objects.get()
    with ledger.transaction():
        mocks = {"tools": {"pay": {"answers": [{"when": {"pin": SECRET}, "sequence": [{"result": 1}]}]}}}
        mocked = runs.create(runs.Start(agent, {}, "pay", "rehearsed", None, mocks=mocks))
    path = address(Run, "changelist")
    shown = staff.get(path).content.decode()
    assert shown.split("rehearsed")[1].split("</tr>")[0].count('alt="True"') == 1
    assert "rehearsed" not in staff.get(path, {"mocked": "no"}).content.decode()
    only = staff.get(path, {"mocked": "yes"}).context["cl"].queryset
    assert list(only) == [mocked]
    assert SECRET not in staff.get(address(Run, "change", mocked.pk)).content.decode()
