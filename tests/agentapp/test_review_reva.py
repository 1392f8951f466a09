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


class TestAGrantAndRisk:
    def test_a_call_of_more_risk_than_the_request_had_asks(self, clerk, dana, credit):
        """docs/grants.md: no grant answers for "one of more risk than the request had"."""
        rule = Rule.objects.create(name="credits", tool="credit", verdict="allow")
        for number in range(10):
            clerk.run(calls(call("c", "credit", to="ann", amount=10 + number)), says("done"))
        rule.delete()

        terms = {"rules": {"to": "any", "amount": "at_most"}, "most": {"amount": "1000"}}
        asks = clerk.run(calls(call("a", "credit", to="ann", amount=5)), says("done"))
        [request] = clerk.open(asks)
        # Beside it, what the same call would be asked about without a grant.
        big = clerk.run(calls(call("b", "credit", to="mallory", amount=900)), says("done"))
        [weighty] = clerk.open(big)
        assert request.risk == "low" != weighty.risk  # medium at work, high at night
        grant_from(request, dana, **terms)
        run = clerk.run(calls(call("d", "credit", to="mallory", amount=901)), says("done"))
        assert run.waiting_for == "approval", clerk.execution(run, "d").allowed_by


class TestACountUnderAGrant:
    @pytest.mark.skipif("connection.vendor != 'postgresql'")
    def test_what_a_tool_counts_while_another_call_begins_is_not_lost(self, clerk, dana, offer, monkeypatch):
        @tool(effect="compensable", limits={"recipients": 100})
        def mail_all(names: list[str], context: ToolContext) -> list[str]:
            """Write to many people."""
            for _ in names:
                context.count("recipients")
            return names

        offer(mail_all)
        grant = a_grant(clerk, dana, "mail_all", {"names": list("abc")}, counts={"recipients": "50"})
        covers, counted = granted.covers, []

        def slowly(current, wanted):
            """The tool of another call, that began before, counts while this one looks at what is left."""
            if not counted:
                counted.append(True)

                def count():
                    assert grants.count(grant.pk, "recipients", 40)
                    connection.close()

                other = threading.Thread(target=count)
                other.start()
                other.join(20)
                assert not other.is_alive()
            return covers(current, wanted)

        monkeypatch.setattr(grants, "covers", slowly)
        run = clerk.run(calls(call("m", "mail_all", names=list("abc"))), says("done"))
        assert run.state == "succeeded" and counted
        assert GrantLimit.objects.get(grant=grant).used == Decimal(43)


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
        run = clerk.run(calls(call("s", "send", to="ann", how="lost"), call("p", "pay", account="ann", amount=5)), says("done"))
        assert (run.waiting_for, clerk.open(run)) == ("outcome", [])
        # By the admin's own ways: the rule names another group, and the old one, which nothing names any more, goes.
        rule.groups.set([new])
        configuration.delete(old, "system")
        actions.resolve_outcome(clerk.execution(run, "s").pk, "happened", "I looked.", dana)
        run = clerk.drive(run)
        assert (run.state, run.waiting_for) == ("waiting", "approval")
        assert [group.name for group in clerk.open(run)[0].groups.all()] == ["New"]


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
