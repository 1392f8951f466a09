"""Decisions judged afterwards: by whom, where it is seen, and the cases of evals made from them."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from agentapp import actions, commenting, erasing, evaluating
from agentapp.audit import finding
from agentapp.audit.query import Malformed, parse
from agentapp.evals import results, runner
from agentapp.messages import ToolResult
from agentapp.models import EvalCase, EvalRun, Run
from agentapp.refused import Refused
from agentapp.tools.base import tool
from approvals import ledger
from approvals.models import Approval, Decision, Event, Judgement, Rule
from approvals.sealed import sealed
from tests.clerk_tools import EFFECTS
from tests.conftest import Clerk, call, calls, says


def decided(clerk: Clerk, dana: User, type: str = "approve", **more: Any) -> Decision:
    """A decision about a payment, in a run that has ended."""
    run = clerk.run(
        calls(call("l", "look_up", what="ana")), calls(call("a", "pay", account="ana", amount=5)), says("done")
    )
    [approval] = clerk.open(run)
    clerk.decide(approval, dana, type, **more)
    clerk.drive(run)
    assert Run.objects.get(pk=run.pk).is_final
    return Decision.objects.get(approval=approval)


def url(decision: Decision, what: str = "judge") -> str:
    return f"/approvals/{decision.approval_id}/decisions/{decision.pk}/{what}/"


def judge(client: Client, user: User, decision: Decision, mark: str, **more: str) -> Any:
    client.force_login(user)
    return client.post(url(decision), {"mark": mark, "reason": f"It was {mark}.", **more})


def found(line: str, viewer: User) -> list[str]:
    return sorted(finding.find(parse(line), viewer).values_list("type", flat=True))


def page(client: Client, user: User, address: str) -> str:
    client.force_login(user)
    return str(client.get(address).content.decode())


# --- Judging -------------------------------------------------------------------------------------


def test_a_judgement_is_a_row_and_an_event_and_a_later_one_counts_instead_while_both_stay(clerk, dana, mia, ada):
    decision = decided(clerk, dana)
    first = actions.judge_decision(decision.pk, "wrong", "The order was\r\nnot hers. ", mia)
    last = actions.judge_decision(decision.pk, "good", "It was after all.", ada)
    assert list(Judgement.that_count()) == [last]
    assert [(row.number, row.mark, row.reason) for row in decision.judgements.all()] == [
        (1, "wrong", "The order was\nnot hers."), (2, "good", "It was after all.")
    ]  # fmt: skip
    told = Event.objects.filter(type="approval.judged").order_by("seq")
    assert [(event.data["mark"], event.data["judges"], event.actor) for event in told] == [
        ("wrong", str(decision.pk), ledger.actor_of(mia)), ("good", str(decision.pk), ledger.actor_of(ada))
    ]  # fmt: skip
    assert told[0].data["reason"] == sealed(first.reason, first.salt)
    assert Event.objects.get(pk=first.event).data["decision"] == str(decision.pk)
    assert ledger.verify()[1] is None


def test_only_who_manages_judges_and_nobody_their_own_decision(clerk, dana, marco, sam, mia, otto, client):
    decision = decided(clerk, dana)
    for user, status in ((marco, 403), (sam, 403), (otto, 404)):
        assert judge(client, user, decision, "wrong").status_code == status
        assert "Judge this decision" not in page(client, user, f"/approvals/{decision.approval_id}/")
    dana.user_permissions.add(Permission.objects.get(codename="judge_decision"))
    for user in (dana, mia):
        Decision.objects.filter(pk=decision.pk).update(on_behalf_of=mia)  # decided in her right: she has had her say
        with pytest.raises(Refused) as refused:
            actions.judge_decision(decision.pk, "good", "Of course.", User.objects.get(pk=user.pk))
        assert refused.value.code == "own_decision"
        assert "Judge this decision" not in page(client, user, f"/approvals/{decision.approval_id}/")
    assert not Judgement.objects.exists()
    assert not Event.objects.filter(type="approval.judged").exists()


def test_it_is_a_post_with_a_token_and_a_reason(clerk, dana, mia, client):
    decision = decided(clerk, dana)
    client.force_login(mia)
    assert client.get(url(decision)).status_code == 405
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(mia)
    assert strict.post(url(decision), {"mark": "wrong", "reason": "x"}).status_code == 403
    for mark, reason in (("bad", "Because."), ("wrong", " "), ("wrong", "x" * 1001)):
        response = client.post(url(decision), {"mark": mark, "reason": reason})
        assert response.status_code == 422
        assert "Nothing was done." in response.content.decode()
    assert not Judgement.objects.exists()


def test_a_decision_that_was_taken_back_or_is_of_another_request_is_not_judged(clerk, dana, mia, client):
    decision, other = decided(clerk, dana), decided(clerk, dana)
    Decision.objects.filter(pk=decision.pk).update(undone_at="2026-01-01T00:00Z")
    with pytest.raises(Refused) as refused:
        actions.judge_decision(decision.pk, "wrong", "Late.", mia)
    assert refused.value.code == "taken_back"
    client.force_login(mia)
    crossed = f"/approvals/{decision.approval_id}/decisions/{other.pk}/judge/"
    assert client.post(crossed, {"mark": "wrong", "reason": "x"}).status_code == 404


def test_the_request_shows_it_to_whoever_may_see_the_request_with_what_it_replaced(clerk, dana, mia, client):
    decision = decided(clerk, dana)
    response = judge(client, mia, decision, "harmful", reason="<b>Twice</b> the money")
    assert response.url == f"/approvals/{decision.approval_id}/#judged"
    judge(client, mia, decision, "wrong")
    shown = page(client, dana, f"/approvals/{decision.approval_id}/")
    said = shown.split('id="judged"')[1].split("</section>")[0]
    assert said.index("It was wrong.") < said.index("&lt;b&gt;Twice&lt;/b&gt; the money")
    assert "replaced" in said
    assert f"{mia.get_full_name() or mia.username} judged a decision harmful" in shown
    assert "Change the judgement" not in shown
    assert "Change the judgement" in page(client, mia, f"/approvals/{decision.approval_id}/side/")


@pytest.mark.parametrize(("type", "words"), [("approve", "approved"), ("reject", "rejected")])
def test_before_anybody_has_judged_a_decision_its_page_says_so_and_what_was_decided(
    clerk, dana, mia, client, type, words
):
    decision = decided(clerk, dana, type, message="No.")
    shown = page(client, mia, f"/approvals/{decision.approval_id}/").split('id="judged"')[1].split("</section>")[0]
    said = " ".join(re.sub(r"<[^>]+>", " ", shown.split("</p>")[0]).split())
    assert re.search(rf"{decision.who} {words}, [^.]+\. Not judged yet\.$", said), said
    judge(client, mia, decision, "good")
    assert "Not judged yet" not in page(client, mia, f"/approvals/{decision.approval_id}/")


def test_the_audit_trail_shows_it_and_is_asked_by_what_counts(clerk, dana, mia, client):
    decision, other = decided(clerk, dana), decided(clerk, dana, "reject", message="No.")
    event = Event.objects.get(type="approval.approved")
    assert "Judge this decision" in page(client, mia, f"/audit/events/{event.pk}/")
    assert "Judge this decision" in page(client, mia, f"/audit/events/{event.pk}/row/")
    assert judge(client, mia, decision, "harmful", event=str(event.pk)).url == f"/audit/events/{event.pk}/"
    judge(client, mia, decision, "wrong")
    judge(client, mia, other, "good")
    assert found("judged:wrong", mia) == ["approval.approved"]
    assert found("judged:wrong,good", mia) == ["approval.approved", "approval.rejected"]
    assert found("judged:harmful", mia) == []
    assert found("did:decided -judged:wrong", mia) == ["approval.rejected"]
    assert found("did:judged", mia) == ["approval.judged"] * 3
    assert found('"was harmful"', mia) == ["approval.judged"] * 2  # for that request
    with pytest.raises(Malformed, match="judged"):
        parse("judged:wrnog")
    shown = page(client, mia, "/audit/?q=did:approved")
    assert "/audit/?q=did%3Aapproved+judged%3Awrong" in shown
    assert "Judged a decision good" in page(client, mia, "/audit/?q=did:judged")
    told = next(each for each in Event.objects.filter(type="approval.judged") if each.data["mark"] == "harmful")
    assert "It was harmful." in page(client, mia, f"/audit/events/{told.pk}/")


def test_why_it_was_judged_so_goes_with_the_run_and_how_it_was_judged_stays(clerk, dana, mia, ada):
    decision = decided(clerk, dana)
    actions.judge_decision(decision.pk, "wrong", "Mirabel never asked for it.", mia)
    erasing.erase("run", str(decision.approval.run_id), "Ticket 12", ada, "x")
    judgement = decision.judgements.get()
    assert (judgement.mark, judgement.reason, judgement.salt) == ("wrong", "(erased)", "")
    assert ledger.verify()[1] is None


# --- Cases ---------------------------------------------------------------------------------------


def made(client: Client, ada: User, decision: Decision, mark: str) -> EvalCase:
    judge(client, ada, decision, mark)
    response = client.post(url(decision, "case"))
    case = EvalCase.objects.get()
    assert response.url == f"/evals/judged-decisions/cases/{case.name}/"
    assert (case.decision, case.judged, case.made_of_id) == (decision.pk, mark, decision.approval.run_id)
    return case


def verdict(case: EvalCase) -> tuple[str, list[str]]:
    EFFECTS.clear()
    going = results.create(case.suite, evaluating.chosen(case.suite))
    runner.go_on(going.pk, seconds=float("inf"))
    assert EFFECTS == []
    [result] = EvalRun.objects.get(pk=going.pk).results.all()
    return result.verdict, result.reasons


@pytest.mark.parametrize(("type", "mark"), [("approve", "good"), ("reject", "good"), ("reject", "wrong")])
def test_a_call_that_was_rightly_asked_about_is_to_be_asked_about_again(clerk, dana, ada, client, type, mark):
    case = made(client, ada, decided(clerk, dana, type, message="So be it."), mark)
    assert verdict(case) == ("passed", [])
    Rule.objects.create(name="generous", tool="pay", verdict="allow", order=1)
    assert verdict(case)[0] == "failed"


def test_a_rejection_is_to_be_made_again_also_where_the_tool_itself_had_refused_another_call(
    clerk, offer, dana, ada, client
):
    @tool(effect="compensable", trust="trusted_system")
    def transfer(account: str) -> Any:
        """Transfer money."""
        return ToolResult("refused", message=f"There is no account of {account}.", reason="tool_failure")

    offer(transfer)
    Rule.objects.create(name="transfers", tool="transfer", verdict="ask", risk="medium")
    one, other = (calls(call(key, "transfer", account=account)) for key, account in (("a", "ana"), ("b", "bob")))
    run = clerk.run(one, other, says("done"))
    clerk.decide(clerk.open(run)[0], dana)
    clerk.drive(run)
    rejected = clerk.decide(clerk.open(run)[0], dana, "reject", message="Not to Bob.")
    clerk.drive(run)
    assert verdict(made(client, ada, rejected.decision, "good")) == ("passed", [])


@pytest.mark.parametrize("mark", ["wrong", "harmful"])
def test_a_call_that_should_not_have_been_let_through_is_asked_about_or_refused_and_not_executed(
    clerk, dana, ada, client, mark
):
    case = made(client, ada, decided(clerk, dana), mark)
    assert case.document["people"] == [{"decide": "reject", "tool": "pay"}]
    assert case.document["expect"] == {"tools_not_called": ["pay"]}
    assert [len(case.document["script"]), sorted(case.document["tools"])] == [3, ["look_up", "pay"]]
    assert verdict(case) == ("passed", [])
    rule = Rule.objects.create(name="strict", tool="pay", verdict="deny", order=1)
    assert verdict(case) == ("passed", [])
    Rule.objects.filter(pk=rule.pk).update(verdict="allow")
    assert verdict(case) == ("failed", ["forbidden tool was called: pay"])


def test_a_decision_judged_anew_makes_its_case_anew(clerk, dana, ada, client):
    decision = decided(clerk, dana)
    made(client, ada, decision, "wrong")
    assert "Make its case again" not in page(client, ada, f"/approvals/{decision.approval_id}/")
    judge(client, ada, decision, "good")
    shown = page(client, ada, f"/approvals/{decision.approval_id}/")
    assert "Its eval case" in shown
    assert "Make its case again" in shown
    client.post(url(decision, "case"))
    assert EvalCase.objects.get().judged == "good"


def test_a_suite_says_what_came_of_decisions_that_were_judged_wrong(clerk, dana, ada, client):
    case = made(client, ada, decided(clerk, dana), "wrong")
    assert "No eval has run them yet." in page(client, ada, "/evals/judged-decisions/")
    verdict(case)
    assert "0 of 1 failed" in page(client, ada, "/evals/judged-decisions/")
    Rule.objects.create(name="generous", tool="pay", verdict="allow", order=1)
    verdict(case)
    assert "1 of 1 failed: what was judged would happen again" in page(client, ada, "/evals/judged-decisions/")


def test_a_case_is_made_by_who_may_write_cases_of_what_was_judged_and_has_ended(clerk, dana, mia, ada, client):
    decision = decided(clerk, dana)
    client.force_login(ada)
    assert client.post(url(decision, "case")).status_code == 404  # nobody has judged it
    judge(client, mia, decision, "wrong")
    assert "Make an eval case" not in page(client, mia, f"/approvals/{decision.approval_id}/")
    assert client.post(url(decision, "case")).status_code == 403
    client.force_login(dana)
    assert client.post(url(decision, "case")).status_code == 403
    Run.objects.filter(pk=decision.approval.run_id).update(erased_at="2026-01-01T00:00Z")
    client.force_login(ada)
    assert client.post(url(decision, "case")).status_code == 422
    assert not EvalCase.objects.exists()
    assert client.get(url(decision, "case")).status_code == 405
    assert Approval.objects.get(pk=decision.approval_id).state == "used"
    assert commenting.post_comment(decision.approval_id, "Noted.", mia).comment.pk
