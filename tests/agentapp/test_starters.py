"""A tool can be kept to runs that some people start: an agent does not lend its rights to whoever may start it."""

from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from django.contrib.auth.models import Group, User
from django.db.models import ProtectedError
from django.test import Client
from django.utils import timezone

from agentapp import actions, context_variables, customers, executor, runs, starters, toolset, trying
from agentapp.models import Agent, ContextVariable, Conversation, Route, Run, Tool, ToolExecution
from approvals import configuration
from approvals.models import Event, Rule
from tests.agentapp.customers_at_work import access_to, say
from tests.clerk_tools import effects_of
from tests.conftest import Clerk, call, calls, says
from tests.teams import Team, child_of

pytestmark = pytest.mark.django_db
PAY = calls(call("p", "pay", account="ana", amount=20))


@pytest.fixture
def payers(clerk: Clerk) -> Group:
    """The only people whose runs may call `pay`. Nobody is one yet."""
    group = Group.objects.create(name="Payers")
    configuration.save(Tool.objects.get(name="pay"), "test", {"starters": [group]})
    return group


def refused(clerk: Clerk, **more: Any) -> actions.Refused:
    before = Run.objects.count(), Event.objects.count()
    with pytest.raises(actions.Refused) as found:
        clerk.start(PAY, says("done"), **more)
    assert (Run.objects.count(), Event.objects.count()) == before
    return found.value


def outcome(clerk: Clerk, run: Run, call_id: str = "p") -> tuple[str, str]:
    execution = clerk.execution(run, call_id)
    return execution.result_status, execution.reason


class TestStarting:
    def test_others_are_refused_before_a_model_is_asked(self, clerk: Clerk, payers: Group) -> None:
        why = refused(clerk)
        assert (why.code, why.status, why.field) == ("forbidden", 403, "agent")
        assert why.message == "clerk has tools that only other people's runs may call: pay."

    def test_members_start_as_before(self, clerk: Clerk, payers: Group) -> None:
        clerk.starter.groups.add(payers)
        Rule.objects.create(name="pays", tool="pay", verdict="allow")
        assert clerk.run(PAY, says("done")).state == "succeeded"
        assert len(effects_of("pay")) == 1

    def test_no_right_stands_for_being_a_member(self, clerk: Clerk, payers: Group) -> None:
        clerk.starter = User.objects.create_superuser("root")
        refused(clerk)

    def test_a_route_without_the_tool_is_open_to_everybody(self, clerk: Clerk, payers: Group) -> None:
        Route.objects.create(agent=clerk.agent, name="ask").tools.set(Tool.objects.filter(name="look_up"))
        Route.objects.create(agent=clerk.agent, name="pay").tools.set(Tool.objects.filter(name="pay"))
        assert clerk.run(says("done"), route="ask").state == "succeeded"
        refused(clerk, route="pay")

    def test_a_tool_that_is_out_of_use_keeps_nobody_out(self, clerk: Clerk, payers: Group) -> None:
        Tool.objects.filter(name="pay").update(enabled=False)
        assert clerk.run(says("done")).state == "succeeded"

    def test_trying_a_run_again_is_starting_one(self, clerk: Clerk, payers: Group, ada: User) -> None:
        clerk.starter.groups.add(payers)
        run = clerk.run(says("done"))
        with pytest.raises(actions.Refused, match="only other people's runs"):
            actions.retry_run(run.pk, ada)

    def test_a_mocked_run_reaches_no_tool_and_is_open(self, clerk: Clerk, payers: Group, ada: User) -> None:
        clerk.starter = ada
        Rule.objects.create(name="pays", tool="pay", verdict="allow")
        run = clerk.run(PAY, says("done"), mocks={"tools": {"pay": {"answers": [{"sequence": [{"result": "paid"}]}]}}})
        assert (run.state, outcome(clerk, run)) == ("succeeded", ("ok", ""))
        assert effects_of("pay") == []

    def test_a_tool_is_not_tried_by_others(self, clerk: Clerk, payers: Group, ada: User) -> None:
        trial = trying.Trial(Tool.objects.get(name="pay"), clerk.agent, {"account": "ana", "amount": 5}, why="To see.")
        assert trying.rehearse(trial, ada, looks=False).verdict == trying.REFUSED
        with pytest.raises(actions.Refused, match="kept to those of other people"):
            trying.try_tool(trial, ada, trial.tool.pk)
        ada.groups.add(payers)
        assert trying.rehearse(trial, ada, looks=False).verdict == "ask"
        assert trying.try_tool(trial, ada, trial.tool.pk).is_trial

    def test_nothing_is_asked_of_the_database_if_no_tool_is_kept(
        self, clerk: Clerk, django_assert_num_queries: Any
    ) -> None:
        run = clerk.start(says("done"))
        read = toolset.read_configuration(run, 0)
        with django_assert_num_queries(0):
            assert read.barred == frozenset()


class TestCalling:
    def test_whoever_is_a_member_no_more_when_the_call_is_due_has_lost_it(
        self, clerk: Clerk, payers: Group, dana: User
    ) -> None:
        clerk.starter.groups.add(payers)
        run = clerk.run(PAY, says("done"))
        clerk.decide(clerk.open(run)[0], dana)
        clerk.starter.groups.remove(payers)
        assert clerk.drive(run).state == "succeeded"
        assert outcome(clerk, run) == ("refused", "permission_denied")
        assert effects_of("pay") == []

    def test_a_call_that_rules_allow_is_checked_as_well(self, clerk: Clerk, payers: Group) -> None:
        Rule.objects.create(name="pays", tool="pay", verdict="allow")
        clerk.starter.groups.add(payers)
        run = clerk.start(PAY, says("done"))
        clerk.starter.groups.remove(payers)
        clerk.drive(run)
        assert outcome(clerk, run) == ("refused", "permission_denied")
        assert "pay" not in run.steps.order_by("number")[0].disclosed_tools

    def test_a_tool_that_is_kept_since_the_run_began_is_offered_no_more(self, clerk: Clerk, dana: User) -> None:
        run = clerk.run(calls(call("s", "send", to="ana")), PAY, says("done"))
        configuration.save(Tool.objects.get(name="pay"), "test", {"starters": [Group.objects.create(name="Payers")]})
        clerk.decide(clerk.open(run)[0], dana)
        clerk.drive(run)
        assert outcome(clerk, run, "s") == ("ok", "")
        assert outcome(clerk, run) == ("refused", "permission_denied")

    def test_a_read_that_waits_behind_a_write_is_checked_as_well(self, clerk: Clerk, payers: Group, dana: User) -> None:
        configuration.save(Tool.objects.get(name="look_up"), "test", {"starters": [payers]})
        clerk.starter.groups.add(payers)
        run = clerk.run(calls(call("s", "send", to="ana"), call("l", "look_up", what="order")), says("done"))
        clerk.decide(clerk.open(run)[0], dana)
        clerk.starter.groups.remove(payers)
        clerk.drive(run)
        assert outcome(clerk, run, "l") == ("refused", "permission_denied")

    def test_a_read_whose_worker_was_lost_is_not_made_again(
        self, clerk: Clerk, payers: Group, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        configuration.save(Tool.objects.get(name="look_up"), "test", {"starters": [payers]})
        clerk.starter.groups.add(payers)
        run = clerk.start(calls(call("l", "look_up", what="order")), says("done"))
        with monkeypatch.context() as dies:
            dies.setattr(executor, "_attempt_read", Mock(side_effect=runs.LeaseLost("gone")))
            clerk.drive(run)
        assert clerk.execution(run, "l").state == "executing"
        clerk.starter.groups.remove(payers)
        Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
        clerk.drive(run)
        assert outcome(clerk, run, "l") == ("refused", "permission_denied")

    def test_a_mocked_call_outside_of_its_route_is_refused_as_before(
        self, clerk: Clerk, payers: Group, ada: User
    ) -> None:
        Route.objects.create(agent=clerk.agent, name="ask").tools.set(Tool.objects.filter(name="look_up"))
        clerk.starter = ada
        run = clerk.run(PAY, says("done"), route="ask", mocks={})
        assert outcome(clerk, run) == ("refused", "tool_not_disclosed")

    def test_what_others_have_read_is_no_variable_of_this_run(self, clerk: Clerk, payers: Group) -> None:
        clerk.starter.groups.add(payers)
        look_up, others = Tool.objects.get(name="look_up"), Group.objects.create(name="Others")
        ContextVariable.objects.create(
            agent=clerk.agent, name="order", tool=look_up, arguments={"what": "order"}, freshness_seconds=600
        )
        run = clerk.start(says("done"), customer="Ana")
        assert [call.name for call in context_variables.stale(run)] == ["look_up"]
        configuration.save(look_up, "test", {"starters": [others]})
        assert context_variables.stale(run) == []
        assert context_variables.values(run) == {}

    def test_a_customer_reaches_the_person_who_has_taken_over(self, clerk: Clerk, dana: User, payers: Group) -> None:
        clerk.starter.groups.add(payers)
        run = clerk.run(PAY, says("done"), conversation="ticket-7", customer="Ana")
        actions.take_over_run(run.pk, dana)
        clerk.starter.groups.remove(payers)
        assert actions.start_run_once(
            actions.NewRun("clerk", "Hello?", conversation="ticket-7", customer="Ana"), clerk.starter
        ).kept

    def test_nobody_opens_a_conversation_whose_messages_would_be_refused(self, clerk: Clerk, payers: Group) -> None:
        with pytest.raises(actions.Refused, match="only other people's runs may call: pay") as found:
            access_to(clerk)
        assert (found.value.code, found.value.field) == ("forbidden", "agent")
        assert not Conversation.objects.exists()

    def test_nor_makes_a_link_to_one_unless_a_person_answers(self, clerk: Clerk, dana: User, payers: Group) -> None:
        clerk.starter.groups.add(payers)
        access = access_to(clerk)
        run = say(access, "Hello?")
        clerk.starter.groups.remove(payers)
        with pytest.raises(actions.Refused, match="only other people's runs may call: pay"):
            customers.make_link(access, 1)
        customers.ask_for_person(access)
        actions.take_over_run(run.pk, dana)
        access.conversation.refresh_from_db()
        assert customers.make_link(access, 1).conversation == access.conversation
        assert access_to(clerk).conversation == access.conversation

    def test_the_customer_learns_nothing_about_tools(self, clerk: Clerk, payers: Group) -> None:
        clerk.starter.groups.add(payers)
        access = access_to(clerk)
        clerk.starter.groups.remove(payers)
        with pytest.raises(actions.Refused) as found:
            say(access, "Hello?")
        assert (found.value.code, found.value.message) == (
            "forbidden", "This conversation cannot go on here. Please get in touch with us another way.",
        )  # fmt: skip

    def test_nor_about_an_agent_that_is_switched_off(self, clerk: Clerk) -> None:
        access = access_to(clerk)
        Agent.objects.filter(pk=clerk.agent.pk).update(enabled=False)
        with pytest.raises(actions.Refused, match="cannot go on here"):
            say(access, "Hello?")

    def test_opening_it_again_changes_nothing(self, clerk: Clerk, payers: Group) -> None:
        clerk.starter.groups.add(payers)
        access = access_to(clerk)
        clerk.starter.groups.remove(payers)
        assert access_to(clerk).conversation == access.conversation

    def test_an_inactive_member_counts_as_none(self, clerk: Clerk, payers: Group) -> None:
        clerk.starter.groups.add(payers)
        assert starters.barred(clerk.starter.pk, Tool.objects.all()) == frozenset()
        User.objects.filter(pk=clerk.starter.pk).update(is_active=False)
        assert starters.barred(clerk.starter.pk, Tool.objects.all()) == {"pay"}

    def test_a_run_of_nobody_calls_no_kept_tool(self, payers: Group) -> None:
        assert starters.barred(None, Tool.objects.all()) == {"pay"}

    def test_an_agent_that_another_asks_has_the_same_starter(self, clerk: Clerk, payers: Group) -> None:
        team = Team(clerk)
        team.may_ask("refunds", PAY, says("I could not."))
        Agent.objects.get(name="refunds").tools.set(Tool.objects.filter(name="pay"))
        clerk.agent.tools.remove(Tool.objects.get(name="pay"))
        run = team.run(calls(call("a", "ask_refunds", input="Pay Ana.")), says("done"))
        made = ToolExecution.objects.get(run=child_of(run))
        assert (made.result_status, made.reason) == ("refused", "permission_denied")


class TestConfiguring:
    def test_a_group_that_a_tool_names_cannot_be_deleted(self, payers: Group) -> None:
        with pytest.raises(ProtectedError, match="named by pay"):
            configuration.delete(payers, "test")

    def test_it_is_an_event(self, payers: Group) -> None:
        event = Event.objects.filter(type="configuration.changed").latest("seq")
        assert (event.data["before"]["starters"], event.data["after"]["starters"]) == ([], ["Payers"])

    def test_the_page_of_the_tool_says_so(self, client: Client, payers: Group, ada: User) -> None:
        client.force_login(ada)
        assert "Called in runs of</dt><dd>Payers</dd>" in client.get("/tools/pay/").content.decode()
        assert "everybody who may start them" in client.get("/tools/send/").content.decode()
