"""An agent and its routes are one page; each changed row is one event."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from agentapp import agent_tools, switches, tool_sync
from agentapp.configuration_file import dump, load
from agentapp.models import Agent, EvalCase, EvalSuite, Guideline, Route, Tool
from approvals import grants, ledger, rule_terms, rule_versions
from approvals.models import Delegation, Grant, Rule
from tests.admin_pages import address, configuration_events, errors_of, save, submit
from tests.conftest import Clerk
from tests.grants import a_grant

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(client: Client, ada: User, settings: Any) -> Client:
    settings.TOOL_MODULES = ["tests.tools_for_tests"]
    tool_sync.sync("test")
    client.force_login(ada)
    return client


def agent(**fields: Any) -> dict[str, Any]:
    return {"name": "support", "model_settings": '{"temperature": 0}', "max_steps": "20", **fields}


def tools(*names: str) -> list[Any]:
    return [str(Tool.objects.get(name=name).pk) for name in names]


def test_an_agent_with_a_route_is_an_event_each(staff: Client) -> None:
    seen = ledger.height()
    fields = agent(tools=tools("look_up_order", "pay_out"), max_cost="0.5")
    route = {"routes-TOTAL_FORMS": "1", "routes-0-name": "refunds", "routes-0-tools": tools("pay_out")}
    save(staff, address(Agent, "add"), **fields, **route)
    made, routed = configuration_events(after=seen)
    assert made.data["after"]["tools"] == ["look_up_order", "pay_out"]
    assert made.data["after"]["max_cost"] == "0.500000"
    assert (routed.data["name"], routed.data["after"]["tools"]) == ("support/refunds", ["pay_out"])


def test_only_the_route_that_changed_is_recorded(staff: Client) -> None:
    stored = Agent.objects.create(name="support")
    stored.tools.set(Tool.objects.filter(name="look_up_order"))
    Route.objects.create(agent=stored, name="refunds")
    Route.objects.create(agent=stored, name="status")
    seen = ledger.height()
    url = address(Agent, "change", stored.pk)
    save(staff, url, **{"routes-1-tools": tools("look_up_order")})
    save(staff, url)
    [event] = configuration_events(after=seen)
    assert event.data["name"] == "support/status"
    assert (event.data["before"], event.data["after"]) == ({"tools": []}, {"tools": ["look_up_order"]})


def test_a_route_that_is_taken_out_is_recorded(staff: Client) -> None:
    stored = Agent.objects.create(name="support")
    Route.objects.create(agent=stored, name="refunds")
    save(staff, address(Agent, "change", stored.pk), **{"routes-0-DELETE": "on"})
    assert not Route.objects.exists()
    [event] = [event for event in configuration_events() if event.type == "configuration.deleted"]
    assert event.data["name"] == "support/refunds"


def variable(tool: str) -> dict[str, Any]:
    fields = {"variables-0-name": "order", "variables-0-tool": tools(tool)[0], "variables-0-arguments": "{}"}
    return {"variables-TOTAL_FORMS": "1", **fields}


def test_a_variable_is_read_by_a_tool_of_the_agent(staff: Client) -> None:
    foreign = submit(staff, address(Agent, "add"), **agent(tools=tools("pay_out")), **variable("look_up_order"))
    assert "look_up_order is not among the agent&#x27;s tools." in errors_of(foreign)
    assert not Agent.objects.exists()
    save(staff, address(Agent, "add"), **agent(tools=tools("look_up_order")), **variable("look_up_order"))
    stored = Agent.objects.get()
    assert stored.variables.get().name == "order"
    url = address(Agent, "change", stored.pk)
    assert "look_up_order is not among" in errors_of(submit(staff, url, tools=tools("pay_out")))
    save(staff, url, tools=tools("pay_out"), **{"variables-0-DELETE": "on"})
    assert not stored.variables.exists()


def test_a_variable_may_ask_another_agent_that_only_reads(staff: Client) -> None:
    Agent.objects.create(name="reader")
    Agent.objects.create(name="triage", subagents=["reader"])
    agent_tools.sync("test")
    asking = agent_tools.tool_name("reader")
    save(staff, address(Agent, "add"), **agent(subagents='["reader"]'), **variable(asking))
    assert Agent.objects.get(name="support").variables.get().tool.name == asking


def test_a_route_has_a_page_of_its_own(staff: Client) -> None:
    stored, other = Agent.objects.create(name="support"), Agent.objects.create(name="other")
    stored.tools.set(Tool.objects.filter(name="pay_out"))
    save(staff, address(Route, "add"), agent=str(stored.pk), name="refunds", tools=tools("pay_out"))
    route = Route.objects.get()
    save(staff, address(Route, "change", route.pk), agent=str(other.pk), description="Money back.")
    route.refresh_from_db()
    assert (route.agent, route.description) == (stored, "Money back.")
    assert [event.type for event in configuration_events()[-2:]] == ["configuration.created", "configuration.changed"]


NO_SCRIPTS = ("null", "false", "0", '""', "{}", '"x"')


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"driver": "magic"}, "magic is not one of the available choices"),
        ({"model_settings": '{"a": 1, "a": 2}'}, "appears twice"),
        ({"model_settings": '{"seed": 9007199254740993}'}, "too large to be exact"),
        ({"driver": "react", "driver_settings": '{"max_retries": -1}'}, "less than the minimum of 0"),
        ({"driver": "react", "driver_settings": '{"retries": 1}'}, "retries is not a setting"),
        ({"max_steps": "-1"}, "greater than or equal to 0"),
        ({"hooks": '["tests.clerk_hooks.gone"]'}, "cannot be imported"),
        ({"hooks": '["tests.clerk_hooks.plain"]'}, "is not a hook"),
        ({"hooks": '"tests.clerk_hooks.Spy"'}, "Hooks are a list of dotted paths."),
        ({"compiler_settings": '{"sections": ["summary"]}'}, "Only the compiler sections reads sections; this"),
        ({"compiler_settings": "[1]"}, "Compiler settings are an object"),
        (
            {"message_compiler": "sections", "compiler_settings": '{"sections": ["sumary"]}'},
            "one or more of summary, conv",
        ),
        ({"message_compiler": "sections", "compiler_settings": '{"section": []}'}, "is not a compiler setting"),
        ({"tool_choice": "look_up"}, "nor one of its tools, of which it has none."),
        ({"driver": "scripted", "driver_settings": '{"script": [{"say": "x"}]}'}, "script/0/say"),
        *(({"driver": "scripted", "driver_settings": f'{{"script": {value}}}'}, "script: ") for value in NO_SCRIPTS),
        ({"driver_settings": '{"max_retries": 2}'}, "This driver has no settings."),
        ({"driver_settings": '"x"'}, "Driver settings are an object"),
        ({"model_settings": '{"temperature": "hot"}'}, "temperature must be a number from 0 to 2."),
        ({"model_settings": '{"extra_headers": {}}'}, "is not a model setting. Known settings: cache,"),
        ({"model": "gpt-5"}, "is not a model name. Known forms:"),
        ({"finish_reasons": '["lenght"]'}, "is not a finish reason. The reasons are stop, length,"),
        ({"finish_reasons": '"length"'}, "Give a list of finish reasons"),
        ({"max_steps": "0"}, "At least 1: with 0, a run stops before"),
        ({"denied_subagents": '["nobody"]'}, "There is no agent"),
        ({"instructions": "a\x00b"}, "Null characters are not allowed"),
        ({"input_schema": '["order"]'}, "An input schema is an object, as in"),
        ({"input_schema": "7"}, "An input schema is an object, as in"),
        ({"input_schema": "[]"}, "An input schema is an object, as in"),
        ({"input_schema": '{"type": "objct"}'}, "A run&#x27;s input is an object"),
        ({"input_schema": '{"type": ["array", 5]}'}, "A run&#x27;s input is an object"),
        ({"input_schema": '{"properties": ["order"]}'}, "properties is an object of objects"),
        ({"input_schema": '{"properties": {"order": 5}}'}, "order is not."),
        ({"input_schema": '{"properties": {"order": "string"}}'}, "order is not."),
        ({"input_schema": '{"properties": {"order": {"type": "txt"}}}'}, "Not a usable JSON Schema"),
        ({"input_schema": '{"properties": {"order": {"pattern": "("}}}'}, "Not a usable JSON Schema"),
        ({"input_schema": '{"required": "order"}'}, "Not a usable JSON Schema"),
        ({"input_schema": '{"required": ["order"]}'}, "required names order, which is not among the properties"),
        ({"input_schema": '{"properties": {"order": {"$ref": "https://shop.example/order"}}}'}, "may not refer to"),
    ],
)
def test_an_agent_that_could_not_run_is_refused(staff: Client, fields: dict[str, str], message: str) -> None:
    assert message in errors_of(submit(staff, address(Agent, "add"), **agent(**fields)))
    assert not Agent.objects.exists()


def test_an_agent_keeps_its_hooks_and_an_empty_field_means_none(staff: Client) -> None:
    save(staff, address(Agent, "add"), **agent(hooks='["tests.clerk_hooks.Spy"]'))
    stored = Agent.objects.get()
    assert stored.hooks == ["tests.clerk_hooks.Spy"]
    save(staff, address(Agent, "change", stored.pk), hooks="")
    stored.refresh_from_db()
    assert stored.hooks == []


@pytest.mark.parametrize(
    "schema",
    ["{}", '{"type": "object"}', '{"type": ["object", "null"]}', '{"properties": {"order": {"type": "string"}}}'],
)
def test_a_schema_of_which_a_form_can_be_made_is_taken(staff: Client, schema: str) -> None:
    save(staff, address(Agent, "add"), **agent(input_schema=schema))
    assert Agent.objects.get().input_schema == json.loads(schema)


TYPED = {
    "model_settings": '{ "temperature": 1.50, "temperature": 2e0 }',
    "compiler_settings": '{"sections":  ["sumary"]}',
    "hooks": "[not json",
    "finish_reasons": "[" * 3000,
    "subagents": '[ "nobody" ]',
}


def test_what_was_typed_stands_in_the_form_again_to_the_letter(staff: Client) -> None:
    page = submit(staff, address(Agent, "add"), **agent(instructions="Be\nkind.", tool_choice="fly", **TYPED))
    errors_of(page)
    form = page.context["adminform"].form
    assert {name: form[name].value() for name in TYPED} == TYPED
    assert set(form.errors) == {*TYPED, "tool_choice"}
    assert (form["instructions"].value(), form["tool_choice"].value()) == ("Be\nkind.", "fly")
    assert "{ &quot;temperature&quot;: 1.50, &quot;temperature&quot;: 2e0 }" in page.content.decode()


@pytest.mark.parametrize("typed", ["", " ", "null"])
def test_a_field_that_is_emptied_has_its_default(staff: Client, typed: str) -> None:
    columns = {"model_settings": {}, "compiler_settings": {}, "driver_settings": {}, "hooks": [], "finish_reasons": []}
    save(staff, address(Agent, "add"), **agent(**dict.fromkeys(columns, typed)))
    stored = Agent.objects.get()
    assert {name: getattr(stored, name) for name in columns} == columns


def test_a_chosen_tool_is_one_of_those_ticked(staff: Client) -> None:
    save(staff, address(Agent, "add"), **agent(tools=tools("pay_out"), tool_choice="pay_out"))
    stored = Agent.objects.get()
    page = submit(staff, address(Agent, "change", stored.pk), tools=tools("look_up_order"))
    assert "nor one of its tools: look_up_order." in errors_of(page)


class TestWhatCouldNotBeLoadedAgain:
    """Everything the admin accepts can be dumped and loaded."""

    @pytest.fixture
    def support(self, staff: Client) -> Agent:
        stored: Agent = Agent.objects.create(name="support")
        stored.tools.set(Tool.objects.filter(name="look_up_order"))
        return stored

    def stays(self, staff: Client, row: Agent | Route | Tool, why: str) -> None:
        url = address(type(row), "delete", row.pk)
        assert why in staff.post(url, {"post": "yes"}).content.decode()
        assert type(row)._default_manager.filter(pk=row.pk).exists()
        load(dump(), "test")

    def test_a_route_offers_tools_of_its_agent_alone(self, staff: Client, support: Agent) -> None:
        message = "pay_out is not among the agent&#x27;s tools."
        new = {"agent": str(support.pk), "name": "refunds"}
        assert message in errors_of(submit(staff, address(Route, "add"), **new, tools=tools("pay_out")))
        save(staff, address(Route, "add"), **new, tools=tools("look_up_order"))
        page = address(Route, "change", Route.objects.get().pk)
        assert message in errors_of(submit(staff, page, tools=tools("pay_out")))
        page = address(Agent, "change", support.pk)
        assert message in errors_of(submit(staff, page, **{"routes-0-tools": tools("pay_out")}))
        both = tools("look_up_order", "pay_out")
        save(staff, page, tools=both, **{"routes-0-tools": tools("pay_out")})
        assert message in errors_of(submit(staff, page, tools=tools("look_up_order")))
        load(dump(), "test")

    def test_a_guideline_may_call_tools_of_its_agent_alone(self, staff: Client, support: Agent) -> None:
        new = {"agent": str(support.pk), "name": "finding", "condition": "they ask"}
        page = submit(staff, address(Guideline, "add"), **new, tools=tools("pay_out"))
        assert "pay_out is not among the agent&#x27;s tools." in errors_of(page)
        save(staff, address(Guideline, "add"), **new, tools=tools("look_up_order"))
        page = submit(staff, address(Agent, "change", support.pk), tools=tools("pay_out"))
        assert "The guideline finding may call look_up_order" in errors_of(page)
        load(dump(), "test")

    def test_what_a_rule_names_stays(self, staff: Client, support: Agent) -> None:
        route = Route.objects.create(agent=support, name="refunds")
        rule = Rule.objects.create(name="careful", agent="support", verdict="deny", version=1)
        self.stays(staff, support, "rule careful")
        Rule.objects.update(agent="", route="refunds")
        self.stays(staff, support, "rule careful")
        self.stays(staff, route, "rule careful")
        taken_out = submit(staff, address(Agent, "change", support.pk), **{"routes-0-DELETE": "on"})
        assert "These name a route you want to delete: rule careful." in errors_of(taken_out)
        Rule.objects.update(route="", tool="pay_out")
        Tool.objects.filter(name="pay_out").update(missing_since=timezone.now())
        self.stays(staff, Tool.objects.get(name="pay_out"), "rule careful")
        rule.delete()
        staff.post(address(Agent, "delete", support.pk), {"post": "yes"})
        assert not Agent.objects.exists()

    def test_a_route_goes_that_another_agent_has_as_well_where_a_rule_is_for_that_of_any(
        self, staff: Client, support: Agent
    ) -> None:
        other = Agent.objects.create(name="other")
        ours, theirs = (Route.objects.create(agent=each, name="refunds") for each in (support, other))
        Rule.objects.create(name="careful", route="refunds", verdict="deny", version=1)
        both = {"action": "delete_selected", "post": "yes", ACTION_CHECKBOX_NAME: [str(support.pk), str(other.pk)]}
        assert "rule careful" in staff.post(address(Agent, "changelist"), both).content.decode()
        staff.post(address(Route, "delete", ours.pk), {"post": "yes"})
        assert list(Route.objects.all()) == [theirs]
        self.stays(staff, theirs, "rule careful")

    def test_what_was_there_before_it_was_looked_at_keeps_nothing_else_from_being_changed(
        self, staff: Client, support: Agent
    ) -> None:
        Route.objects.create(agent=support, name="refunds").tools.set(Tool.objects.filter(name="pay_out"))
        support.tools.clear()
        save(staff, address(Agent, "change", support.pk), description="Answers mail.")
        support.refresh_from_db()
        assert support.description == "Answers mail."

    def test_an_agent_that_others_name_stays(self, staff: Client, support: Agent) -> None:
        front = Agent.objects.create(name="front", subagents=["*"], denied_subagents=["support"])
        self.stays(staff, support, "agent front (denied_subagents)")
        Agent.objects.filter(pk=front.pk).update(denied_subagents=[])
        agent_tools.sync("test")
        route = Route.objects.create(agent=front, name="orders")
        route.tools.set(Tool.objects.filter(name="ask_support"))
        self.stays(staff, support, "route front/orders")
        chosen = {"action": "delete_selected", "post": "yes", ACTION_CHECKBOX_NAME: [str(support.pk), str(front.pk)]}
        staff.post(address(Agent, "changelist"), chosen)
        assert not Agent.objects.exists()


class TestANameThatIsKnown:
    """Its rules would apply to no agent, and a new one with the old name would take its grants."""

    @pytest.fixture
    def page(self, staff: Client) -> str:
        stored = Agent.objects.create(name="support")
        Route.objects.create(agent=stored, name="refunds")
        return address(Agent, "change", stored.pk)

    def test_is_kept_while_a_rule_is_for_the_agent(self, staff: Client, page: str) -> None:
        rule = Rule.objects.create(name="never", agent="support", tool="pay_out", verdict="deny")
        Rule.objects.create(name="others", agent="sales", verdict="deny")
        said = errors_of(submit(staff, page, name="helpers"))
        assert "refer to this agent by name: rule never. Make them" in said
        save(staff, page, description="Helps.")
        rule.delete()
        save(staff, page, name="helpers")

    def test_is_kept_while_cases_of_evals_are_put_to_the_agent(self, staff: Client, page: str) -> None:
        at = {"created_at": timezone.now(), "updated_at": timezone.now()}
        suite = EvalSuite.objects.create(name="nightly", **at)
        case = EvalCase.objects.create(suite=suite, name="asks", kind="ask", agent="support", document={}, **at)
        assert "by name: eval case asks." in errors_of(submit(staff, page, name="helpers"))
        case.delete()
        save(staff, page, name="helpers")

    def test_is_kept_while_a_switch_stops_the_agent(self, staff: Client, page: str, ada: User) -> None:
        with ledger.transaction():
            switch = switches.engage("agent", "support", ada, "It says too much.")
        assert "by name: kill switch on the agent support." in errors_of(submit(staff, page, name="helpers"))
        save(staff, page, description="Helps.")
        assert switch is not None
        with ledger.transaction():
            switches.release(switch, ada)
        save(staff, page, name="helpers")

    def test_is_kept_while_a_draft_is_for_the_agent(self, staff: Client, page: str, ada: User) -> None:
        rule = Rule.objects.create(name="never", tool="pay_out", verdict="deny")
        terms = {**rule_terms.terms_of(rule), "agent": "support"}
        rule_versions.keep_draft(rule, terms, ada, "test")
        assert "rule never" in errors_of(submit(staff, page, name="helpers"))

    def test_of_a_route_is_kept_while_a_rule_is_for_it(self, staff: Client, page: str) -> None:
        rule = Rule.objects.create(name="careful", route="refunds", verdict="ask")
        own = address(Route, "change", Route.objects.get().pk)
        assert "refer to this route by name: rule careful." in errors_of(submit(staff, own, name="returns"))
        assert "rule careful" in errors_of(submit(staff, page, **{"routes-0-name": "returns"}))
        rule.agent = "sales"  # a route of another agent
        rule.save()
        save(staff, own, name="returns")

    def test_is_kept_while_a_grant_of_the_agent_stands(
        self, clerk: Clerk, dana: User, client: Client, ada: User
    ) -> None:
        grant = a_grant(clerk, dana)
        client.force_login(ada)
        own = address(Agent, "change", clerk.agent.pk)
        assert f"grant {grant.reference}" in errors_of(submit(client, own, name="helpers"))
        with ledger.transaction():
            grants.revoke(grant.pk, dana, "It is over.")
        save(client, own, name="helpers")


class TestANameOthersAskBy:
    """The tool that asks an agent has the agent's name: what is set for one is set for the other."""

    @pytest.fixture
    def payments(self, staff: Client) -> Agent:
        stored: Agent = Agent.objects.create(name="payments")
        Agent.objects.create(name="front", subagents=["*"])
        agent_tools.sync("test")
        return stored

    @pytest.mark.parametrize(
        ("columns", "said"),
        [
            ({"subagents": ["payments"]}, "agent lead (subagents)"),
            ({"subagents": ["*"], "denied_subagents": ["payments"]}, "agent lead (denied_subagents)"),
            ({"subagents": ["*"], "tool_choice": "ask_payments"}, "agent lead (tool_choice)"),
        ],
    )
    def test_is_kept_while_another_agent_names_it(
        self, staff: Client, payments: Agent, columns: dict[str, Any], said: str
    ) -> None:
        other = Agent.objects.create(name="lead", **columns)
        page = address(Agent, "change", payments.pk)
        assert f"refer to this agent by name: {said}." in errors_of(submit(staff, page, name="payouts"))
        other.delete()
        save(staff, page, name="payouts")

    def test_is_kept_while_a_rule_is_for_its_tool(self, staff: Client, payments: Agent, ada: User) -> None:
        page = address(Agent, "change", payments.pk)
        rule = Rule.objects.create(name="never", tool="ask_payments", verdict="deny")
        assert "rule never (tool ask_payments)" in errors_of(submit(staff, page, name="payouts"))
        rule.tool = "pay_out"
        rule.save()
        terms = {**rule_terms.terms_of(rule), "tool": "ask_payments"}
        rule_versions.keep_draft(rule, terms, ada, "test")
        assert "rule never (tool ask_payments)" in errors_of(submit(staff, page, name="payouts"))

    def test_is_kept_while_the_right_to_decide_about_its_tool_is_lent(
        self, staff: Client, payments: Agent, dana: User, marco: User
    ) -> None:
        now = timezone.now()
        until = {"since": now, "until": now + timedelta(days=1), "created_at": now}
        lent = Delegation.objects.create(lender=dana, deputy=marco, tools=["ask_payments"], **until)
        Delegation.objects.create(lender=marco, deputy=dana, tools=["pay"], **until)
        page = address(Agent, "change", payments.pk)
        said = errors_of(submit(staff, page, name="payouts"))
        assert "by name: right lent to marco for dana (tool ask_payments)." in said
        Delegation.objects.filter(pk=lent.pk).update(ended_at=now)
        save(staff, page, name="payouts")

    def test_is_kept_while_a_switch_stops_its_tool(self, staff: Client, payments: Agent, ada: User) -> None:
        with ledger.transaction():
            switches.engage("tool", "ask_payments", ada, "It pays twice.")
        said = errors_of(submit(staff, address(Agent, "change", payments.pk), name="payouts"))
        assert "kill switch on the tool ask_payments" in said

    def test_is_kept_while_a_grant_is_for_its_tool(
        self, payments: Agent, clerk: Clerk, dana: User, client: Client, ada: User
    ) -> None:
        grant = a_grant(clerk, dana)
        Grant.objects.filter(pk=grant.pk).update(tool="ask_payments")
        client.force_login(ada)
        said = errors_of(submit(client, address(Agent, "change", payments.pk), name="payouts"))
        assert f"grant {grant.reference} (tool ask_payments)" in said

    def test_is_kept_where_there_is_a_tool_of_the_new_name(self, staff: Client, payments: Agent) -> None:
        gone = Agent.objects.create(name="payouts")
        agent_tools.sync("test")
        gone.delete()
        agent_tools.sync("test")
        page = address(Agent, "change", payments.pk)
        assert "A tool ask_payouts already exists" in errors_of(submit(staff, page, name="payouts"))
        Tool.objects.get(name="ask_payouts").delete()
        save(staff, page, name="payouts")

    def test_takes_its_tool_along_with_what_is_set_for_it(self, staff: Client, payments: Agent) -> None:
        settings = {"effect_class": "irreversible", "approval_mode": "always", "owner": "Rita"}
        Tool.objects.filter(name="ask_payments").update(**settings)
        kept = Tool.objects.get(name="ask_payments").pk
        save(staff, address(Agent, "change", payments.pk), name="pay-desk")
        save(staff, address(Agent, "change", payments.pk), name="pay_desk")
        tool = Tool.objects.get(name="ask_pay_desk")
        assert {name: getattr(tool, name) for name in settings} == settings
        assert (tool.pk, tool.title_template, tool.missing_since) == (kept, "Ask the agent pay_desk", None)
        assert not Tool.objects.filter(name="ask_payments").exists()

    def test_takes_its_tool_along_also_while_nobody_may_ask(self, staff: Client, payments: Agent) -> None:
        Tool.objects.filter(name="ask_payments").update(approval_mode="always")
        Agent.objects.filter(name="front").update(subagents=[])
        for name in ("payouts", "disbursements"):
            save(staff, address(Agent, "change", payments.pk), name=name)
        Agent.objects.filter(name="front").update(subagents=["*"])
        agent_tools.sync("test")
        assert Tool.objects.get(name="ask_disbursements").approval_mode == "always"

    def test_leaves_the_tool_to_an_agent_whose_tool_has_the_same_name(self, staff: Client) -> None:
        for name in ("pay-desk", "pay_desk"):
            Agent.objects.create(name=name)
        Agent.objects.create(name="front", subagents=["pay_desk"])
        agent_tools.sync("test")
        save(staff, address(Agent, "change", Agent.objects.get(name="pay-desk").pk), name="payouts")
        tool = Tool.objects.get(source__kind="agent")
        assert (tool.name, tool.title_template) == ("ask_pay_desk", "Ask the agent pay_desk")
