"""Each word of the line finds what it says, and nothing else, on both databases."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.db.models import Q
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentapp.audit import about, finding
from agentapp.audit.query import Malformed, parse
from agentapp.models import Run, Tool
from approvals import claims, comments, configuration, decisions, ledger, text_search
from approvals.models import Approval, Decision, Event, Rule
from tests.conftest import Clerk, call, calls, says
from tests.rows import a_request, take, within_transaction

pytestmark = pytest.mark.django_db
PAY = calls(call("p", "pay", account="ana", amount=5), text="I pay.")


@pytest.fixture
def paid(clerk: Clerk, dana: User) -> Approval:
    run = clerk.run(PAY, says("Done."))
    approval = clerk.open(run)[0]
    clerk.decide(approval, dana, message="The carrier has confirmed.\nAll is well.")
    clerk.drive(run)
    return Approval.objects.get(pk=approval.pk)


@pytest.fixture
def refused(clerk: Clerk, marco: User) -> Approval:
    """Another request, rejected by Marco."""
    approval = clerk.open(clerk.run(PAY, says("Done.")))[0]
    clerk.decide(approval, marco, type="reject", message="Ask the customer first.")
    return Approval.objects.get(pk=approval.pk)


def found(line: str, viewer: User, **more: Any) -> set[str]:
    """The types of the events found."""
    return {event.type for event in finding.find(parse(line), viewer, **more)}


def count(line: str, viewer: User) -> int:
    return finding.find(parse(line), viewer).count()


def record(type: str, data: dict[str, Any], actor: str = "system") -> Event:
    with ledger.transaction():
        ledger.record(ledger.CONFIGURATION, type, data, actor)
    return Event.objects.filter(type=type).latest("seq")


@pytest.mark.parametrize("name", ["dana", "DANA", "Dana", "Whitfield", '"dana whitfield"', "dana,marco"])
def test_people_are_found_by_any_of_their_names(paid, mia, marco, name) -> None:
    assert found(f"who:{name}", mia) == {"approval.approved"}


def test_machines_and_oneself_are_found_too(paid, mia, dana) -> None:
    assert found("who:model", mia) == {"step.recorded"}
    assert "run.claimed" in found("who:system", mia)
    assert found("who:me", dana) == {"approval.approved"}
    assert found("who:customer", mia) == set()


def test_customers_are_found_together_and_one_by_one(mia) -> None:
    record("signout", {}, "customer:40117 (link x)")
    record("signout", {}, "customer:40118")

    assert count("who:customer", mia) == 2
    assert count("who:customer:40117", mia) == 1
    assert count("via:customer", mia) == 2


def test_what_was_done_is_found_by_its_word(paid, refused, mia) -> None:
    assert found("did:approved", mia) == {"approval.approved"}
    assert found("did:rejected", mia) == {"approval.rejected"}
    assert found("did:changed", mia) == set()
    assert found("did:decided", mia) == {"approval.approved", "approval.rejected"}
    assert found("did:ran", mia) == {"tool_call.completed"}
    assert count("did:ran", mia) + count("did:failed,refused", mia) == count("did:ran,failed,refused", mia)


def test_what_moved_money_is_found_by_what_its_tool_says_of_itself(paid, mia) -> None:
    Tool.objects.filter(name="pay").update(effects_template=[{"icon": "money", "title": "Money leaves"}])
    assert found("did:moved-money", mia) == {"tool_call.completed"}
    Tool.objects.filter(name="pay").update(effects_template=[])
    assert found("did:moved-money", mia) == set()


def test_a_minus_turns_a_condition_round(paid, refused, mia) -> None:
    everything = Event.objects.count()

    assert count("-did:approved", mia) == everything - 1
    assert count("-who:dana", mia) == everything - 1
    assert count("-tool:pay", mia) == everything - count("tool:pay", mia)
    assert count("-took:>0ms", mia) == everything - count("took:>0ms", mia)
    assert count('-"carrier has confirmed"', mia) == everything - 1
    assert count("-did:approved did:approved", mia) == 0


def test_calls_and_requests_are_found_by_their_tool_and_risk(paid, mia) -> None:
    assert {"tool_call.completed", "approval.requested", "approval.approved"} <= found("tool:pay", mia)
    assert "run.queued" not in found("tool:PAY", mia)
    assert found(f"risk:{paid.risk}", mia) == found(f"approval:{paid.pk} -did:ran,began,proposed", mia)


def test_a_tool_that_is_gone_is_found_as_long_as_the_ledger_names_it(paid, mia) -> None:
    record("signout", {"tool": "long_gone"})

    assert count("tool:long_gone", mia) == 1


def test_how_long_it_took_and_what_its_run_cost_are_bounds(paid, refused, mia) -> None:
    Run.objects.filter(pk=paid.run_id).update(cost="2.5")
    event = Event.objects.get(type="approval.approved")

    assert count(f"took:>={event.took_ms}ms did:approved", mia) == 1
    assert count(f"took:<{event.took_ms}ms did:approved", mia) == 0
    assert {event.run_id for event in finding.find(parse("cost:>1"), mia)} == {paid.run_id}
    assert {event.run_id for event in finding.find(parse("cost:2.5"), mia)} == {paid.run_id}
    assert count("cost:<1,>2", mia) == Event.objects.filter(run_id__isnull=False).count()


def test_times_are_counted_from_now_and_days_from_midnight(paid, mia) -> None:
    everything, now = Event.objects.count(), timezone.now()

    assert count("since:1h", mia) == everything
    assert count("since:today..today", mia) + count("since:yesterday..yesterday", mia) == everything
    assert found("until:1h", mia) == set()
    assert found("since:1h", mia, now=now + timedelta(hours=2)) == set()
    assert len(found("since:3h..1h", mia, now=now + timedelta(hours=2))) > 3
    assert found("since:2020-01-01..2020-12-31", mia) == set()


def test_runs_requests_and_agents_are_found_by_what_people_call_them(paid, refused, mia) -> None:
    chain = Event.objects.filter(run_id=paid.run_id).count()
    run = Run.objects.get(pk=paid.run_id)

    assert count(f"run:{run.reference}", mia) == chain
    assert count(f"run:{run.pk}", mia) == chain
    assert count(f"approval:{paid.reference}", mia) == Event.objects.filter(approval_id=paid.pk).count()
    assert count(f"agent:{run.agent.name.upper()}", mia) == Event.objects.filter(run_id__isnull=False).count()


def test_a_team_finds_what_it_may_decide(paid, refused, mia, roles) -> None:
    paid.groups.add(roles["approver"])

    assert {event.approval_id for event in finding.find(parse("team:APPROVER"), mia)} == {paid.pk}


def test_a_policy_finds_what_it_stopped_and_what_was_changed_about_it(paid, refused, mia, ada) -> None:
    rule = Rule(name="payments", verdict="ask", tool="pay")
    configuration.save(rule, ledger.actor_of(ada))
    Approval.objects.filter(pk=paid.pk).update(rule="payments")

    assert found("rule:payments", mia) >= {"configuration.created", "approval.approved"}
    assert refused.pk not in {event.approval_id for event in finding.find(parse("rule:payments"), mia)}


def test_how_they_came_is_found(paid, mia) -> None:
    record("signout", {}, "user:99:eve (token CI)")

    assert found("via:token", mia) == {"signout"}
    assert "approval.approved" in found("via:console", mia)
    assert "signout" not in found("via:console", mia)
    assert found("via:model", mia) == {"step.recorded"}


@pytest.mark.parametrize("line", ['"carrier has confirmed"', "CONFIRMED", '"all is well"', "carrier -kettle"])
def test_text_is_found_in_what_somebody_wrote(paid, refused, mia, line) -> None:
    assert "approval.approved" in found(line, mia)
    assert "approval.rejected" not in found(line, mia)


def test_what_people_wrote_about_a_request_finds_the_event_that_tells_of_it(dana, marco, mia, roles) -> None:
    request, other = a_request(), a_request()
    said = within_transaction
    said(claims.hand_over, request.pk, dana, marco, "The heron knows more.")
    said(comments.post, request, dana, "The walrus is waiting.")
    question = said(decisions.ask, request.pk, dana, "Which ocelot is it?", timedelta(hours=1))
    said(decisions.answer, question.pk, "The spotted lynx.", marco)
    take(request, marco, "reject", message="No badger was there.")
    said(comments.post, other, dana, "Nothing of the kind.")

    assert found("heron", mia) == {"approval.handed_over"}
    assert found('"walrus is waiting"', mia) == {"approval.commented"}
    assert found("ocelot", mia) == found("lynx", mia) == {"approval.asked", "approval.answered"}
    assert found("badger", mia) == {"approval.rejected"}
    for word in ("heron", "walrus", "ocelot", "lynx", "badger"):
        assert {event.approval_id for event in finding.find(parse(word), mia)} == {request.pk}
        assert count(f"-{word}", mia) == Event.objects.count() - count(word, mia)
        assert word not in "".join(Event.objects.values_list("body", flat=True))


def test_words_that_were_erased_find_nothing(paid, refused, mia) -> None:
    within_transaction(decisions.erase, [paid.run_id], "system")

    assert found('"carrier has confirmed"', mia) == set()
    assert found('"customer first"', mia) == {"approval.rejected"}


def test_text_in_the_title_of_a_request_finds_everything_about_it(paid, refused, mia) -> None:
    Approval.objects.filter(pk=paid.pk).update(title="Refund $184.50 to Ana Pereira")

    assert {event.approval_id for event in finding.find(parse('"ana pereira"'), mia)} == {paid.pk}
    assert {"approval.requested", "approval.used"} <= found("pereira", mia)
    assert found('pereira "carrier has confirmed"', mia) == {"approval.approved"}


@pytest.mark.parametrize("text", ["'", "\\", "a & b | !c", "<->", "%", "_", '"\\""', "(", ":*", "\u202e", "日本", "ü"])
def test_no_text_is_more_than_text(paid, mia, text) -> None:
    try:
        line = parse(text)
    except Malformed:
        line = parse(f'"{text.strip(chr(34))}x"')
    assert finding.find(line, mia).count() >= 0


@pytest.mark.parametrize("few", [0, 5000])
def test_what_there_are_few_and_many_of_is_found_alike(paid, refused, mia, monkeypatch, few) -> None:
    monkeypatch.setattr(about, "FEW", few)
    monkeypatch.setattr(about, "FEW_RUNS", few)
    paid.groups.add(Group.objects.get(name="approver"))
    Run.objects.filter(pk=paid.run_id).update(cost="2.5")
    Approval.objects.filter(pk=paid.pk).update(title="Refund to Zebediah", rule="payments")
    of_it = Q(approval_id=paid.pk)

    decision = paid.decisions.get()
    Decision.objects.filter(pk=decision.pk).update(shown_at=decision.decided_at - timedelta(seconds=2))
    told = Event.objects.get(type="approval.approved", approval_id=paid.pk)

    assert list(finding.find(parse("seen:<3s"), mia)) == [told]
    assert set(finding.find(parse("-seen:<3s"), mia)) == set(Event.objects.exclude(pk=told.pk))
    for line in ("team:approver", "rule:payments", "zebediah"):
        assert set(finding.find(parse(line), mia)) == set(Event.objects.filter(of_it)), line
        assert set(finding.find(parse(f"-{line}"), mia)) == set(Event.objects.exclude(of_it)), line
    assert set(finding.find(parse("cost:>1"), mia)) == set(Event.objects.filter(run_id=paid.run_id))
    assert set(finding.find(parse("-cost:>1"), mia)) == set(Event.objects.exclude(run_id=paid.run_id))
    assert found('"carrier has confirmed"', mia) == {"approval.approved"}


def test_decisions_are_found_by_the_time_since_they_were_first_shown_to_whoever_decided(paid, refused, mia) -> None:
    """If that time is unknown, no search finds it; an undone decision counts as little as in the figures."""
    for approval, seconds in ((paid, 2), (refused, 90)):
        decision = approval.decisions.get()
        Decision.objects.filter(pk=decision.pk).update(shown_at=decision.decided_at - timedelta(seconds=seconds))

    assert found("seen:<3s", mia) == {"approval.approved"}
    assert found("seen:>=2s,<1s", mia) == {"approval.approved", "approval.rejected"}
    assert found("seen:>999999999d", mia) == set()
    assert found("did:rejected seen:<2min", mia) == {"approval.rejected"}
    Decision.objects.filter(approval=paid).update(undone_at=timezone.now())
    Decision.objects.filter(approval=refused).update(shown_at=None)
    assert found("seen:<3s", mia) == found("seen:>0s", mia) == set()


@pytest.mark.parametrize("line", ["who:nobody", "tool:nothing", "team:none", "rule:none", "agent:none", "run:000000"])
def test_a_name_that_nothing_has_is_an_error_and_not_an_empty_page(paid, mia, line) -> None:
    with pytest.raises(Malformed, match="There is no"):
        finding.find(parse(line), mia)


def test_words_are_found_through_the_index_that_was_made_for_them(mia) -> None:
    if connection.vendor != "postgresql":
        assert not text_search.by_words()
        return
    with CaptureQueriesContext(connection) as asked:
        text_search.event_says("kettle", 5)
    [keys] = [query["sql"] for query in asked if "plainto_tsquery" in query["sql"]]
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(f"EXPLAIN {keys}".replace("%", "%%"))
        events = "\n".join(row[0] for row in cursor.fetchall())
        titles = Approval.objects.filter(text_search.title_says("kettle")).explain()
        written = {kind.rows._meta.db_table: kind.saying("kettle").explain() for kind in text_search.WRITTEN}

    assert "approvals_event_text" in events
    assert "approvals_approval_text" in titles
    assert {table for table, plan in written.items() if f"{table}_text" not in plan} == set()


@pytest.mark.parametrize(
    ("line", "index"),
    [("did:changed", "event_edited"), ("did:failed", "event_failed"), ("did:refused", "event_refused"),
     ("via:token", "event_by_token")],
)  # fmt: skip
def test_what_is_rare_among_its_kind_has_an_index(mia, line, index) -> None:
    if connection.vendor != "postgresql":
        assert not text_search.by_words()
        return
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        for name in ("event_latest", "event_of_type"):
            cursor.execute(f"DROP INDEX {name}")

    assert index in finding.find(parse(line), mia).order_by("-at", "-id")[:50].explain()


def test_whatever_the_ledger_takes_can_be_indexed(mia) -> None:
    long = "wörter " * 40_000
    record("signout", {"text": f"{long}\\u0000 end", "nul": "\x01", "deep": [[["x"]]]})
    record("signout", {"text": "w" * 300_000})

    assert Event.objects.filter(type="signout").count() == 2
