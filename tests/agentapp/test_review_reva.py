"""What governance promises and does not keep: each test fails on what is."""

import threading
from decimal import Decimal

import pytest
from django.db import connection
from django.urls import reverse

from agentapp.models import Tool
from agentapp.tools.base import ToolContext, tool
from approvals import granted, grants, ledger, policy
from approvals.models import Approval, GrantLimit, Rule
from tests.conftest import call, calls, says
from tests.grants import a_grant, grant_from, let_grant


@pytest.fixture
def credit(offer):
    @tool(effect="reversible")
    def credit(to: str, amount: float) -> str:
        """Credit an account."""
        return to

    return offer(credit)["credit"]


class TestThePreviewOfAGrant:
    def test_says_nothing_of_the_secret_arguments_of_other_calls(self, clerk, dana, offer, client):
        @tool(effect="compensable", secret=("pin",))
        def unlock(to: str, pin: str) -> str:
            """Unlock an account."""
            return to

        offer(unlock)
        run = clerk.run(calls(call("u", "unlock", to="ann", pin="4711")), says("done"))
        [request] = clerk.open(run)
        client.force_login(let_grant(dana))

        def found(most: str) -> str:
            posted = {"rule:to": "any", "rule:pin": "at_most", "most:pin": most, "days": "7", "look": "1"}
            page = client.post(reverse("grant_new", args=[request.pk]), posted).content.decode()
            return page[page.index("Of the last 30 days") :][:120] if "Of the last 30 days" in page else ""

        assert found("4710") == found("4711")


class TestTheReasonOfARuling:
    @pytest.mark.parametrize("condition", ['{"a": 1}[args.token] > 0', 'duration(args.token) > duration("1s")'])
    def test_says_no_secret_where_a_condition_fails(self, condition):
        rule = Rule(name="keys", verdict="ask", condition=condition, order=1)
        rule._prefetched_objects_cache = {"groups": []}
        policy.validate_condition(condition)
        told = policy.evaluate(
            [rule],
            policy.Call(tool="t", effect_class="irreversible", arguments={"token": "sk_live_42"}, secret=("token",)),
        )
        assert told.verdict == "ask"
        assert "sk_live_42" not in told.reason


class TestARequestMadeLate:
    def test_whose_group_has_gone_meanwhile_is_asked_by_the_rules_of_now(self, clerk, dana):
        """The ruling frozen at proposal names a group by its key; the card behind an unknown outcome is made later."""
        from django.contrib.auth.models import Group

        from agentapp import actions
        from approvals import configuration

        old, new = Group.objects.create(name="Old"), Group.objects.create(name="New")
        dana.groups.add(old, new)
        Rule.objects.create(name="sends", tool="send", verdict="allow")
        rule = Rule.objects.create(name="pays", tool="pay", verdict="ask")
        rule.groups.set([old])
        run = clerk.run(
            calls(call("s", "send", to="ann", how="lost"), call("p", "pay", account="ann", amount=5)), says("done")
        )
        assert (run.waiting_for, clerk.open(run)) == ("outcome", [])
        # By the admin's own ways: the rule names another group, and the old one, which nothing names any more, goes.
        rule.groups.set([new])
        configuration.delete(old, "system")
        actions.resolve_outcome(clerk.execution(run, "s").pk, "happened", "I looked.", dana)
        run = clerk.drive(run)
        assert (run.state, run.waiting_for) == ("waiting", "approval")
        assert [group.name for group in clerk.open(run)[0].groups.all()] == ["New"]


class TestASecretInAReason:
    def test_is_on_no_request_and_in_no_event(self, clerk, offer):
        from approvals.models import Event

        @tool(effect="compensable", secret=("pin",))
        def unlock(to: str, pin: str) -> str:
            """Unlock an account."""
            return to

        offer(unlock)
        Rule.objects.create(name="known pins", tool="unlock", verdict="ask", condition='{"0000": true}[args.pin]')
        run = clerk.run(calls(call("u", "unlock", to="ann", pin="4711-secret")), says("done"))
        [request] = clerk.open(run)
        told = [event.type for event in Event.objects.filter(run_id=run.pk) if "4711-secret" in event.body]
        assert ("4711-secret" in request.reason, told) == (False, [])


class TestTheListOfGrants:
    def test_shows_every_grant_in_force(self, clerk, dana, client, monkeypatch):
        from agentapp.console import grants as pages

        monkeypatch.setattr(pages, "MOST_IN_FORCE", 1)
        first, second = a_grant(clerk, dana), a_grant(clerk, dana, arguments={"to": "bob"})
        client.force_login(let_grant(dana))
        page = client.get(reverse("grants")).content.decode()
        assert (second.reference in page, first.reference in page) == (True, True)


class TestAskingAgain:
    def test_the_second_person_is_told_that_it_was_asked_again(self, clerk, dana, marco):
        from datetime import timedelta

        from django.utils import timezone

        from agentapp import actions
        from approvals import decisions

        Rule.objects.create(name="pays", tool="pay", verdict="ask")
        pay = call("p", "pay", account="ann", amount=5), call("q", "pay", account="bob", amount=6)
        run = clerk.run(calls(*pay), says("done"))
        _, second = clerk.open(run)
        Approval.objects.filter(pk=second.pk).update(expires_at=timezone.now() - timedelta(seconds=5))
        with ledger.transaction():
            assert decisions.expire(second.pk)
        actions.ask_again(second.pk, dana)
        with pytest.raises(actions.Refused) as refused:
            actions.ask_again(second.pk, marco)
        assert "has been told" not in refused.value.message


class TestTheNameOfAnAgent:
    def test_that_a_grant_or_a_rule_knows_is_kept(self, clerk, dana):
        """As that of a group is: the rules for it would be for nobody, and whoever takes the name takes its grants."""
        from django.forms.models import model_to_dict

        from agentapp.admin.agents import AgentAdmin
        from agentapp.models import Agent
        from django.contrib.admin import site
        from django.test import RequestFactory

        a_grant(clerk, dana)
        Rule.objects.create(name="never", agent="clerk", tool="label", verdict="deny")
        request = RequestFactory().get("/")
        request.user = dana
        dana.is_superuser = True
        made = AgentAdmin(Agent, site).get_form(request, clerk.agent, change=True)
        data = {name: ("" if value is None else value) for name, value in model_to_dict(clerk.agent).items()}
        data["tools"] = [tool.pk for tool in clerk.agent.tools.all()]
        import json

        data = {n: json.dumps(v) if isinstance(v, (dict, list)) and n != "tools" else v for n, v in data.items()}
        kept = made(data, instance=Agent.objects.get(pk=clerk.agent.pk))
        assert kept.is_valid(), kept.errors
        renamed = made({**data, "name": "clerk-of-old"}, instance=Agent.objects.get(pk=clerk.agent.pk))
        if renamed.is_valid():
            renamed.save()
            # A newcomer takes the name that is free.
            other = Agent.objects.create(name="clerk", instructions="Do as you like.", driver="scripted")
            other.tools.set(clerk.agent.tools.all())
            clerk.agent.refresh_from_db()
            old = clerk.run(calls(call("l", "label", text="red")), says("done"))
            clerk.agent = other
            new = clerk.run(calls(call("s", "send", to="ann")), says("done"))
            told = (clerk.execution(old, "l").reason, clerk.execution(new, "s").allowed_by)
            assert told == ("policy_denied", "")


class TestATotalOverReads:
    def test_limits_the_reads_of_one_reply(self, clerk):
        """Documented as looked at when proposed only; but those before it in the same reply do not count either."""
        Rule.objects.create(
            name="few", tool="look_up", verdict="deny", condition="history.count('look_up', '1h', 'run') >= 2"
        )
        many = [call(f"r{number}", "look_up", what=str(number)) for number in range(6)]
        run = clerk.run(calls(*many), says("done"))
        ran = [n for n in range(6) if clerk.execution(run, f"r{n}").result_status == "ok"]
        assert len(ran) == 2
