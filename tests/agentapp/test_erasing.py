"""Erasing what is kept of people: nothing of it is left, the ledger holds, and it can be done again."""

import datetime
import json
import uuid
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from agentapp import actions, breakers, commenting, conversations, erasing, evaluating, retention, starting
from agentapp.evals import files, recording, results, runner, suites
from agentapp.models import (
    Breaker,
    Conversation,
    Erasure,
    EvalResult,
    EvalRun,
    EvalSuite,
    Message,
    Run,
    Tool,
    ToolExecution,
)
from agentapp.refused import Refused
from approvals import grants, ledger, notify, sealed
from approvals.models import Approval, Comment, Decision, Event, Notification
from tests.agentapp.evals.conftest import a_case
from tests.agentapp.test_undoing import lending, take_back
from tests.conftest import call, calls, make_user, says
from tests.grants import grant_from, let_grant

NAME = "Mirabel Ostrander"
TOLD = f"Pay back {NAME}."


def ended(clerk, dana, **more) -> Run:
    """A finished run about a person, whose call was commented on and decided with a message."""
    run = clerk.run(
        calls(call("a", "pay", account="ann", amount=5, memo=f"for {NAME}"), text=f"{NAME} asked for it."),
        says(f"{NAME} has the money."),
        input=TOLD,
        **more,
    )
    [approval] = clerk.open(run)
    commenting.post_comment(approval.pk, f"I know {NAME}.", dana)
    clerk.decide(approval, dana, message=f"{NAME} is right.")
    return clerk.drive(run)


def kept() -> str:
    """Everything that every table holds, as text."""
    found = []
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT * FROM "{table}"')
            found += [str(row) for row in cursor.fetchall()]
    return "\n".join(found)


def copy_rows(row, differing: list[dict]) -> None:
    columns = {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}
    for more in differing:
        type(row)(**{**columns, "id": uuid.uuid4(), **more}).save(force_insert=True)


class MostNamed:
    """The most keys that one statement has named."""

    def __init__(self) -> None:
        self.most = 0

    def __call__(self, execute, sql, params, many, context):
        if not many and sql.startswith("SELECT"):
            self.most = max(self.most, len(params or ()))
        return execute(sql, params, many, context)


def test_nothing_of_a_run_is_left_and_the_ledger_holds(clerk, dana, ada):
    run = ended(clerk, dana)
    assert NAME in kept()
    done = erasing.erase("run", str(run.pk), "Ticket 12", ada, ledger.actor_of(ada))
    assert NAME not in kept()
    assert ledger.verify()[1] is None
    assert (done.counts["runs"], done.counts["calls"], done.counts["requests"], done.subject) == (1, 1, 1, "")
    approval = Approval.objects.get()
    assert (approval.title, approval.arguments_text, approval.erased_by) == ("(erased)", "{}", ledger.actor_of(ada))
    assert (approval.state, len(approval.action_digest), approval.salt) == ("used", 64, "")
    types = Event.objects.filter(type__startswith="erasure.").order_by("seq").values_list("type", flat=True)
    assert list(types) == ["erasure.asked", "erasure.done"]
    assert Event.objects.get(type="run.erased").data["calls"] == 1


def test_a_summary_of_what_was_said_in_it_goes_with_a_run(clerk, dana, ada):
    run = ended(clerk, dana, conversation="ticket-1")
    conversation = run.conversation
    last = conversation.messages.latest("seq").seq
    conversations.summarise(conversation, f"{NAME} was paid.", last)
    forked = conversations.fork(conversation, last, "ticket-1b")
    erasing.erase("run", str(run.pk), "Ticket 12", ada, ledger.actor_of(ada))
    assert NAME not in kept()
    for each in (conversation, forked):
        each.refresh_from_db()
        assert (each.summary, each.summary_until) == ("", 0)


def test_a_summary_of_what_was_said_before_it_stays(clerk, dana, ada):
    conversation = clerk.run(says("Hello."), conversation="ticket-1", input="Hello").conversation
    conversations.summarise(conversation, "They greeted each other.", 2)
    run = ended(clerk, dana, conversation="ticket-1")
    erasing.erase("run", str(run.pk), "Ticket 12", ada, ledger.actor_of(ada))
    conversation.refresh_from_db()
    assert (conversation.summary, conversation.summary_until) == ("They greeted each other.", 2)


def test_no_event_ever_held_what_people_said(clerk, dana):
    ended(clerk, dana)
    assert not Event.objects.filter(body__contains=NAME).exists()


def test_the_ledger_says_of_words_what_their_row_can_prove(clerk, dana):
    run = ended(clerk, dana)
    decision, comment = Decision.objects.get(), Comment.objects.get()
    said = {event.type: event.data for event in Event.objects.filter(run_id=run.pk)}
    assert sealed.opens(decision.message, decision.salt, said["approval.approved"]["message"])
    assert sealed.opens(comment.text, comment.salt, said["approval.commented"]["text"])
    assert not sealed.opens(decision.message, "", said["approval.approved"]["message"])
    assert not sealed.opens("Something else.", decision.salt, said["approval.approved"]["message"])


def test_two_calls_alike_have_digests_of_their_own(clerk):
    for _ in range(2):
        clerk.run(calls(call("a", "pay", account="ann", amount=5)), says("done"))
    assert len({(row.action_digest, row.salt) for row in Approval.objects.all()}) == 2


def test_a_run_at_work_is_left_alone(clerk, ada):
    run = clerk.run(calls(call("a", "pay", account="ann", amount=5, memo=NAME)), says("done"))
    with pytest.raises(Refused) as refused:
        erasing.erase("run", str(run.pk), "Ticket 12", ada, ledger.actor_of(ada))
    assert refused.value.code == "active"
    assert NAME in kept()
    assert not Erasure.objects.exists()


def test_it_needs_the_right_a_reason_and_something_to_erase(clerk, dana, mia, ada):
    run = ended(clerk, dana)
    for user, reason, subject, code in (
        (mia, "Ticket 12", run.pk, "forbidden"),
        (ada, " ", run.pk, "message_required"),
        (ada, "Ticket 12", ada.pk, "invalid"),
        (ada, "Ticket 12", clerk.agent.pk, "not_found"),
    ):
        with pytest.raises(Refused) as refused:
            erasing.erase("run", str(subject), reason, user, "x")
        assert refused.value.code == code
    erasing.erase("run", str(run.pk), "Ticket 12", ada, "x")
    with pytest.raises(Refused) as refused:
        erasing.erase("run", str(run.pk), "Ticket 12", ada, "x")
    assert refused.value.code == "nothing_left"


def test_all_of_a_customer_goes_and_nothing_of_another(clerk, dana, ada):
    ended(clerk, dana, conversation="ticket-1", customer="customer-40117")
    ended(clerk, dana, customer="customer-40117")
    other = ended(clerk, dana, conversation="ticket-2", customer="customer-40118")
    erasing.erase("customer", "customer-40117", "Ticket 12", ada, ledger.actor_of(ada))
    assert list(Run.objects.filter(erased_at=None)) == [other]
    assert "customer-40117" not in kept()
    assert not Conversation.objects.filter(key="ticket-1").exists()
    said = Message.objects.filter(conversation__erased_at__isnull=False).values_list("content", flat=True)
    assert set(said) == {"(erased)"}
    assert Message.objects.filter(conversation__key="ticket-2", content__contains=NAME).exists()
    assert ledger.verify()[1] is None


def unnamed_again() -> None:
    """Conversations as stored before they were given the name of their customer."""
    Conversation.objects.update(customer="")


@pytest.mark.parametrize("before", [False, True], ids=["named", "kept before"])
def test_what_a_customer_said_before_they_were_named_goes_with_them(clerk, dana, ada, before):
    first = clerk.run(says("Good day."), input=TOLD, conversation="ticket-1")
    ended(clerk, dana, conversation="ticket-1", customer="40117")
    assert Conversation.objects.get().customer == "40117"
    if before:
        unnamed_again()
    counts = erasing.preview("customer", "40117").counts
    assert (counts["runs"], counts["messages"], counts["conversations"]) == (2, 4, 1)
    done = erasing.erase("customer", "40117", "Ticket 12", ada, "x")
    assert done.counts == {"runs": 2, "messages": 4, "calls": 1, "requests": 1}
    assert NAME not in kept()
    first.refresh_from_db()
    assert first.erased_at is not None
    assert Conversation.objects.get().erased_at is not None


def test_a_conversation_in_which_another_customer_spoke_is_nobodys_alone(clerk, ada):
    own, other = (clerk.run(says("Good day."), conversation="ticket-1", customer="40117") for _ in range(2))
    Run.objects.filter(pk=other.pk).update(customer="40118")
    unnamed_again()
    assert erasing.preview("customer", "40117").counts["conversations"] == 0
    erasing.erase("customer", "40117", "Ticket 12", ada, "x")
    assert list(Run.objects.filter(erased_at=None)) == [other]
    own.refresh_from_db()
    assert own.erased_at is not None


def test_a_killed_worker_leaves_the_beginning_of_a_conversation_to_be_found(clerk, ada, monkeypatch):
    named = clerk.run(says("Good day."), conversation="ticket-1", customer="40117")
    clerk.run(says("Good day."), input=TOLD, conversation="ticket-1")
    unnamed_again()
    take = erasing.take_away

    def be_killed_after_one(run_id, *given):
        if Run.objects.filter(erased_at__isnull=False).exists():
            raise SystemExit
        return take(run_id, *given)

    with monkeypatch.context() as patched:
        patched.setattr(erasing, "take_away", be_killed_after_one)
        with pytest.raises(SystemExit):
            erasing.erase("customer", "40117", "Ticket 12", ada, "x")
    named.refresh_from_db()
    assert (named.customer, NAME in kept()) == ("", True)
    retention.apply_due()
    assert NAME not in kept()
    assert Erasure.objects.get().done_at is not None


def test_white_space_around_a_customers_name_hides_nothing_of_them(clerk, ada):
    spaced = clerk.run(says("Good day."), input=TOLD, conversation="ticket-1", customer=" Ana ")
    assert (spaced.customer, spaced.conversation.customer) == ("Ana", "Ana")
    Run.objects.filter(pk=spaced.pk).update(customer="Ana ")
    Conversation.objects.update(customer="\tAna")
    clerk.run(says("Good day."), input=TOLD, conversation="ticket-1", customer="Ana")
    other = clerk.run(says("Good day."), customer="Ana Pereira")
    assert erasing.preview("customer", "Ana ").counts["runs"] == 2
    erasing.erase("customer", "Ana ", "Ticket 12", ada, "x")
    assert list(Run.objects.filter(erased_at=None)) == [other]
    assert NAME not in kept()


@pytest.mark.parametrize("scope", ["run", "conversation", "customer"])
def test_what_took_a_call_back_goes_with_its_run(clerk, offer, dana, ada, scope):
    offer(lending(), take_back)
    clerk.agent.tools.remove(Tool.objects.get(name="take_back"))
    with ledger.transaction():
        conversations.find_or_open(clerk.agent, "ticket-1", "40117")
    run = clerk.run(calls(call("a", "lend", account=NAME, amount=20)), says("done"), conversation="ticket-1")
    clerk.decide(clerk.open(run)[0], dana)
    assert clerk.drive(run).state == "succeeded"
    undoing = clerk.drive(actions.undo_call(clerk.execution(run, "a").pk, f"{NAME} has paid by card.", dana))
    clerk.decide(clerk.open(undoing)[0], make_user("Marco", "approver"))
    assert clerk.drive(undoing).state == "succeeded"
    run.refresh_from_db()
    subject = {"run": run.pk, "conversation": run.conversation_id, "customer": "40117"}[scope]
    assert erasing.preview(scope, str(subject)).counts["runs"] == 2
    erasing.erase(scope, str(subject), "Ticket 12", ada, ledger.actor_of(ada))
    assert NAME not in kept()
    assert ledger.verify()[1] is None


def test_a_run_that_tries_another_again_goes_with_it(clerk, dana, sam, ada):
    run = ended(clerk, dana)
    again = actions.retry_run(run.pk, sam, 2)
    with pytest.raises(Refused) as refused:
        erasing.erase("run", str(run.pk), "Ticket 12", ada, ledger.actor_of(ada))
    assert refused.value.code == "active"
    clerk.drive(again)
    erasing.erase("run", str(run.pk), "Ticket 12", ada, ledger.actor_of(ada))
    assert NAME not in kept()
    again.refresh_from_db()
    assert again.erased_at is not None


def test_what_a_killed_worker_left_is_done_by_the_next(clerk, dana, ada):
    first = ended(clerk, dana, customer="40117")
    second = ended(clerk, dana, customer="40117")
    made = Erasure.objects.create(
        scope="customer", subject="40117", reason="Ticket 12", asked_by=ada, actor="ada", asked_at=timezone.now()
    )
    with ledger.transaction():
        erasing.take_away(first.pk, "ada", {"erasure": str(made.pk)})
    retention.apply_due()
    assert NAME not in kept()
    made.refresh_from_db()
    assert (made.done_at is not None, made.subject) == (True, "")
    assert not erasing.carry_out(made.pk)
    assert Event.objects.filter(type="run.erased").count() == 2
    second.refresh_from_db()
    assert second.erased_at is not None


def test_what_is_tried_again_while_a_customer_is_being_erased_goes_too(clerk, dana, sam, ada, monkeypatch):
    run = ended(clerk, dana, customer=NAME)
    look, again = erasing._covered, []

    def look_and_be_overtaken(*given):
        found = look(*given)
        if Erasure.objects.exists() and not again:
            again.append(clerk.drive(actions.retry_run(run.pk, sam, 2)))
        return found

    monkeypatch.setattr(erasing, "_covered", look_and_be_overtaken)
    done = erasing.erase("customer", NAME, "Ticket 12", ada, ledger.actor_of(ada))
    assert (len(again), done.counts["runs"]) == (1, 2)
    assert NAME not in kept()


@pytest.mark.parametrize("scope", ["conversation", "customer"])
def test_what_goes_on_of_a_conversation_while_it_is_being_erased_goes_too(clerk, dana, sam, ada, monkeypatch, scope):
    with ledger.transaction():
        talk = conversations.find_or_open(clerk.agent, "ticket-1", NAME)
    ended(clerk, dana, conversation="ticket-1")
    look, forks = conversations.lock, []

    def look_and_be_overtaken(conversation, *given):
        if Erasure.objects.exists() and not forks:
            forks.append(None)
            forks.append(conversations.fork(talk, None, "ticket-1b"))
            clerk.run(says("Good day."), input=f"{NAME} again.", conversation="ticket-1")
        return look(conversation, *given)

    monkeypatch.setattr(conversations, "lock", look_and_be_overtaken)
    subject = {"conversation": str(talk.pk), "customer": NAME}[scope]
    done = erasing.erase(scope, subject, "Ticket 12", ada, ledger.actor_of(ada))
    assert (len(forks), done.counts["runs"]) == (2, 2)
    assert NAME not in kept()
    assert not Conversation.objects.filter(erased_at=None).exists()


def test_nothing_is_begun_anew_of_what_is_erased_just_then(clerk, dana, sam, ada, monkeypatch):
    run = ended(clerk, dana, customer=NAME)
    check = starting._check_new_run

    def check_and_be_overtaken(*given):
        check(*given)
        erasing.erase("run", str(run.pk), "Ticket 12", ada, ledger.actor_of(ada))

    monkeypatch.setattr(starting, "_check_new_run", check_and_be_overtaken)
    with pytest.raises(Refused, match="The input of this run has been erased"):
        actions.retry_run(run.pk, sam, 2)
    assert NAME not in kept()


def overtaken_by_an_erasure(monkeypatch, ada):
    """Somebody checks whether a case can be made of a run; meanwhile somebody else erases it."""
    look = evaluating.hindrance_of

    def look_and_be_overtaken(run):
        found = look(run)
        if not Erasure.objects.exists():
            erasing.erase("run", str(run.pk), "Ticket 12", ada, ledger.actor_of(ada))
        return found

    monkeypatch.setattr(evaluating, "hindrance_of", look_and_be_overtaken)


def test_no_case_is_kept_of_a_run_that_is_erased_just_then(client: Client, clerk, dana, ada, monkeypatch):
    run, suite = ended(clerk, dana), suites.create("desk", "", "test")
    text = files.written(recording.document_of(run, "pays-back"))
    overtaken_by_an_erasure(monkeypatch, ada)
    client.force_login(ada)
    shown = client.post(f"/runs/{run.pk}/case/", {"suite": "desk", "text": text})
    assert shown.status_code == 422
    assert "The input of this run is erased" in shown.content.decode()
    assert not suite.cases.exists()


@pytest.mark.parametrize("judged", [False, True])
def test_a_case_that_is_refused_leaves_no_suite_that_was_to_begin_with_it(
    client, clerk, dana, ada, monkeypatch, judged
):
    run = ended(clerk, dana)
    text = files.written(recording.document_of(run, "pays-back"))
    decision = Decision.objects.get()
    actions.judge_decision(decision.pk, "wrong", "It was not hers.", ada)
    overtaken_by_an_erasure(monkeypatch, ada)
    client.force_login(ada)
    judging = f"/approvals/{decision.approval_id}/decisions/{decision.pk}/case/"
    shown = client.post(judging if judged else f"/runs/{run.pk}/case/", {"suite": "desk", "text": text})
    assert shown.status_code == 422
    assert "The input of this run is erased" in shown.content.decode()
    assert not EvalSuite.objects.exists()


def test_pages_say_who_erased_and_when(client: Client, clerk, dana, ada):
    run = ended(clerk, dana)
    erasing.erase("run", str(run.pk), "Ticket 12", ada, ledger.actor_of(ada))
    approval = Approval.objects.get()
    client.force_login(dana)
    page = client.get(f"/approvals/{approval.pk}/").content.decode()
    assert "Erased" in page
    assert approval.action_digest[:16] in page
    client.force_login(ada)
    for view in ("", "?view=events", "?view=timeline", "?view=conversation", "?step=1"):
        shown = client.get(f"/runs/{run.pk}/{view}")
        assert shown.status_code == 200
        assert "Erased" in shown.content.decode()


class TestThePage:
    def test_shows_what_would_go_before_anything_does(self, client: Client, clerk, dana, ada):
        run = ended(clerk, dana)
        client.force_login(ada)
        form = {"scope": "run", "subject": str(run.pk), "reason": "Ticket 12"}
        shown = client.post("/admin/agentapp/erasure/erase/", form)
        assert "<li>1 request</li>" in shown.content.decode()
        assert NAME in kept()
        agreed = shown.context["form"]["seen"].value()
        done = client.post("/admin/agentapp/erasure/erase/", {**form, "seen": agreed}, follow=True)
        assert "It has been erased." in done.content.decode()
        assert NAME not in kept()

    def test_says_what_is_wrong(self, client: Client, ada):
        client.force_login(ada)
        shown = client.post("/admin/agentapp/erasure/erase/", {"scope": "run", "subject": "x", "reason": "y"})
        assert "Give the id" in shown.content.decode()

    def test_is_for_those_with_the_right(self, client: Client, roles):
        client.force_login(make_user("Vera Viewer", "viewer"))
        assert client.get("/admin/agentapp/erasure/erase/").status_code in (302, 403, 404)


class TestTheCommands:
    def test_erase_says_what_would_go_and_does_it_when_told(self, clerk, dana):
        run, out = ended(clerk, dana), StringIO()
        call_command("erase", "run", str(run.pk), stdout=out)
        assert "Nothing was erased" in out.getvalue()
        assert NAME in kept()
        call_command("erase", "run", str(run.pk), "--reason", "Ticket 12", "--yes", stdout=out)
        assert NAME not in kept()
        assert "Erased: 1 run, " in out.getvalue()
        with pytest.raises(CommandError, match="Nothing is left"):
            call_command("erase", "run", str(run.pk), "--reason", "Ticket 12", "--yes", stdout=out)

    def test_retention_keeps_everything_until_it_is_set(self, clerk, dana):
        ended(clerk, dana)
        Run.objects.update(finished_at=timezone.now() - datetime.timedelta(days=5000))
        out = StringIO()
        call_command("retention", stdout=out)
        assert "Everything is kept" in out.getvalue()
        assert NAME in kept()

    def test_retention_takes_what_is_too_old_and_says_so(self, clerk, dana, settings):
        old, young = ended(clerk, dana), ended(clerk, dana)
        Run.objects.filter(pk=old.pk).update(finished_at=timezone.now() - datetime.timedelta(days=31))
        settings.RETENTION_DAYS = {"content": 30, "notifications": 0}
        out = StringIO()
        call_command("retention", "--dry-run", stdout=out)
        assert "1 runs, 1 calls, 1 requests" in out.getvalue()
        assert not Run.objects.exclude(erased_at=None).exists()
        call_command("retention", stdout=out)
        assert list(Run.objects.filter(erased_at=None)) == [young]
        assert Run.objects.get(pk=old.pk).erased_by == "retention"
        applied = Event.objects.get(type="retention.applied")
        assert (applied.data["runs"], applied.data["calls"]) == (1, 1)
        assert retention.apply() == {}
        assert ledger.verify()[1] is None

    def test_retention_goes_by_the_clock_of_the_database(self, clerk, dana, settings, monkeypatch):
        ended(clerk, dana)
        settings.RETENTION_DAYS = {"content": 30, "notifications": 30, "evals": 30}
        years_ahead = timezone.now() + datetime.timedelta(days=3650)
        monkeypatch.setattr(timezone, "now", lambda: years_ahead)
        assert retention.apply() == {}
        assert [due.is_nothing for due in retention.preview()] == [True, True, True]
        assert list(Run.objects.filter(erased_at=None)) == list(Run.objects.all())

    def test_retention_forgets_where_messages_went(self, clerk, dana, settings):
        ended(clerk, dana)
        approval = Approval.objects.get()
        before = timezone.now() - datetime.timedelta(days=40)
        Notification.objects.filter(approval=approval).delete()
        row = Notification.objects.create(
            approval=approval, user=dana, kind="waiting", created_at=before, state="sent", receipt="<1@x>", error=""
        )
        settings.RETENTION_DAYS = {"content": 0, "notifications": 30}
        assert retention.apply() == {"notifications": 1}
        row.refresh_from_db()
        assert (row.receipt, row.state) == ("", "sent")

    def test_retention_forgets_many_messages_some_at_a_time(self, clerk, dana, monkeypatch, django_assert_num_queries):
        """Otherwise one statement would rewrite hundreds of thousands of rows, or none if it is ended."""
        ended(clerk, dana)
        Notification.objects.all().delete()
        told = {"approval": Approval.objects.get(), "kind": "waiting", "state": "sent", "receipt": "<1@x>"}
        before = timezone.now() - datetime.timedelta(days=40)
        for number in range(5):
            somebody = make_user(f"somebody{number}")
            Notification.objects.create(user=somebody, created_at=before, **told)
        monkeypatch.setattr(notify, "FORGOTTEN_AT_ONCE", 2)
        with django_assert_num_queries(7):  # three times two, and a last look
            assert notify.forget(timezone.now()) == 5
        assert not Notification.objects.exclude(receipt="").exists()

    def test_retention_of_evals_keeps_those_under_way_the_last_and_what_they_are_held_against(self, clerk, settings):
        suite = suites.create("desk", "", "test")
        suites.save_case(suite, a_case("greets", input=TOLD, script=[says("Hello")]), "test")

        def an_eval(**more) -> EvalRun:
            made = results.create(suite, evaluating.chosen(suite), **more)
            runner.go_on(made.pk, seconds=float("inf"))
            return made

        unneeded, basis, named = an_eval(), an_eval(), an_eval()
        last = an_eval(baseline=basis)
        under_way = results.create(suite, evaluating.chosen(suite), baseline=named)
        results.claim(under_way.pk)
        begun = {each.pk: each.results.get().run_id for each in (unneeded, basis, named, last)}
        results.keep(EvalRun.objects.get(pk=under_way.pk), suites.case_of(suite.cases.get()), 1, [], run=None)
        EvalResult.objects.filter(eval_run=under_way).update(run=begun[named.pk])
        long_ago = timezone.now() - datetime.timedelta(days=31)
        EvalRun.objects.exclude(finished_at=None).update(finished_at=long_ago)
        Run.objects.update(finished_at=long_ago)
        settings.RETENTION_DAYS = {"content": 0, "notifications": 0, "evals": 30}
        out = StringIO()
        call_command("retention", "--dry-run", stdout=out)
        assert "evals, older than 30 days" in out.getvalue()
        assert "1 evals, 1 runs" in out.getvalue()
        assert EvalRun.objects.count() == 5
        assert retention.apply()["evals"] == 1
        assert {each.pk for each in EvalRun.objects.all()} == {basis.pk, named.pk, last.pk, under_way.pk}
        assert Run.objects.get(pk=begun[unneeded.pk]).erased_by == "retention"
        assert Run.objects.filter(erased_at=None).count() == 3
        assert retention.apply() == {}
        settings.RETENTION_DAYS = {"content": 30, "notifications": 0, "evals": 0}
        retention.apply()
        assert list(Run.objects.filter(erased_at=None).values_list("pk", flat=True)) == [begun[named.pk]]
        assert ledger.verify()[1] is None

    def test_a_run_of_an_old_eval_that_cannot_be_erased_now_keeps_its_eval(self, clerk, settings):
        suite = suites.create("desk", "", "test")
        suites.save_case(suite, a_case("greets", script=[says("Hello")]), "test")
        first, _last = (results.create(suite, evaluating.chosen(suite)) for _ in range(2))
        for each in EvalRun.objects.all():
            runner.go_on(each.pk, seconds=float("inf"))
        EvalRun.objects.update(finished_at=timezone.now() - datetime.timedelta(days=31))
        run = first.results.get().run
        Run.objects.filter(pk=run.pk).update(state="queued", finished_at=None, stop_reason="")
        settings.RETENTION_DAYS = {"evals": 30}
        assert retention.apply() == {}
        assert EvalRun.objects.count() == 2


def test_an_erased_call_still_counts_as_done(clerk, dana, ada):
    run = ended(clerk, dana)
    key = ToolExecution.objects.get().idempotency_key
    erasing.erase("run", str(run.pk), "Ticket 12", ada, "x")
    call_ = ToolExecution.objects.get()
    assert (call_.idempotency_key, call_.took_effect, json.loads(call_.arguments_text)) == (key, True, {})
    with pytest.raises(actions.Refused):
        actions.retry_run(run.pk, ada)


def test_what_is_said_on_an_erased_run_is_found_and_taken_when_it_is_erased_again(clerk, dana, sam, ada):
    run = ended(clerk, dana, conversation="ticket-1")
    erasing.erase("run", str(run.pk), "Ticket 12", ada, "x")
    actions.take_over_run(run.pk, ada)
    actions.start_run_once(actions.NewRun("clerk", f"{NAME} again.", conversation="ticket-1"), sam)
    actions.write_message(run.pk, f"Good day, {NAME}.", ada)
    assert {name: many for name, many in erasing.preview("run", str(run.pk)).counts.items() if many} == {"messages": 2}
    assert erasing.erase("run", str(run.pk), "Ticket 13", ada, "x").counts == {"messages": 2}
    assert NAME not in kept()
    assert [event.data["messages"] for event in Event.objects.filter(type="run.erased").order_by("seq")] == [2, 2]
    assert ledger.verify()[1] is None
    with pytest.raises(Refused, match="Nothing is left"):
        erasing.erase("run", str(run.pk), "Ticket 13", ada, "x")


def test_a_run_is_erased_by_the_name_its_page_has(clerk, dana, ada):
    run = ended(clerk, dana)
    made = erasing.erase("run", run.reference, "Ticket 12", ada, "x")
    assert made.counts["runs"] == 1
    run.refresh_from_db()
    assert run.erased_at is not None


def test_a_name_that_two_runs_have_erases_neither(clerk, dana, ada):
    first = ended(clerk, dana)
    twin = Run.objects.get(pk=first.pk)
    twin.pk = uuid.UUID(hex=f"{'0' * 26}{first.pk.hex[-6:]}")
    twin.save(force_insert=True)
    with pytest.raises(Refused) as refused:
        erasing.erase("run", first.reference, "Ticket 12", ada, "x")
    assert refused.value.code == "invalid"
    assert not Run.objects.exclude(erased_at=None).exists()


def test_runs_that_mention_a_customer_without_naming_one_are_listed_and_stay(client: Client, clerk, dana, ada):
    about, named = ended(clerk, dana), ended(clerk, dana, customer=NAME)
    seen = erasing.preview("customer", NAME)
    assert (seen.counts["runs"], seen.mentions, list(seen.mentioning)) == (1, 1, [about])
    erasing.erase("customer", NAME, "Ticket 12", ada, "x")
    assert list(Run.objects.filter(erased_at=None)) == [about]
    client.force_login(ada)
    shown = client.post("/admin/agentapp/erasure/erase/", {"scope": "customer", "subject": NAME, "reason": "Ticket"})
    page = shown.content.decode()
    assert "0 runs name this customer; the text of 1 other mentions it" in page
    assert f"?scope=run&amp;subject={about.pk}" in page
    assert named.reference not in page
    assert "Erase it for good" not in page


def test_no_statement_names_more_rows_than_a_database_takes(clerk, ada, monkeypatch):
    with ledger.transaction():
        talk = conversations.find_or_open(clerk.agent, "ticket-0", NAME)
    run = clerk.run(says(f"Good day, {NAME}."), input=TOLD, customer=NAME)
    beside = clerk.run(says("Good day."), input=TOLD, conversation="ticket-0")
    many = 60
    copy_rows(talk, [{"key": f"ticket-{number + 1}"} for number in range(many)])
    copy_rows(run, [{} for _ in range(many)])
    twins = Run.objects.filter(customer=NAME).exclude(pk__in=[run.pk, beside.pk])
    copy_rows(run, [{"customer": "", "parent_id": twin.pk, "depth": 1} for twin in twins])
    monkeypatch.setattr(erasing, "BATCH", 7, raising=False)
    with connection.execute_wrapper(named := MostNamed()):
        seen = erasing.preview("customer", NAME)
        done = erasing.erase("customer", NAME, "Ticket 12", ada, "x")
    runs = 2 * many + 2
    assert (seen.counts["runs"], seen.counts["conversations"], done.counts["runs"]) == (runs, many + 1, runs)
    assert seen.counts["messages"] == done.counts["messages"] == Message.objects.filter(content=sealed.ERASED).count()
    assert not Conversation.objects.filter(erased_at=None).exists()
    assert named.most < many


def last_errors() -> dict[str, str]:
    return {each.scope: each.last_error for each in Breaker.objects.all()}


def test_what_a_tool_said_when_it_failed_goes_from_its_breakers_and_of_what_kind_it_was_stays(clerk, ada, settings):
    run = clerk.run(calls(call("a", "fail", how=f"No account for {NAME}")), says("done"))
    assert NAME in last_errors()["tool"]
    erasing.erase("run", str(run.pk), "Ticket 12", ada, ledger.actor_of(ada))
    assert NAME not in kept()
    assert last_errors() == {"tool": "tool_failure: (erased)", "source": "fail: tool_failure: (erased)"}
    other = clerk.run(calls(call("a", "fail", how="The line is dead.")), says("done"))
    assert "The line is dead." in last_errors()["tool"]
    erasing.erase("run", str(clerk.run(says("Good day.")).pk), "Ticket 13", ada, "x")
    assert "The line is dead." in last_errors()["tool"]
    Run.objects.filter(pk=other.pk).update(finished_at=timezone.now() - datetime.timedelta(days=31))
    settings.RETENTION_DAYS = {"content": 30}
    assert retention.apply()["runs"] == 1
    assert last_errors() == {"tool": "tool_failure: (erased)", "source": "fail: tool_failure: (erased)"}


def test_of_a_failure_in_nobody_knows_which_run_the_words_go_with_the_next_erasure(clerk, ada):
    with ledger.transaction():
        breakers.failed(breakers.Thing("tool", "pay"), f"tool_failure: HTTP 404: No {NAME}: none.")
        breakers.failed(
            breakers.Thing("model", "openai:gpt"), f"openai:gpt: the provider failed (503): No {NAME}: none."
        )
        breakers.failed(breakers.Thing("agent", "clerk"), "run run_1a2b3c failed")
    erasing.erase("run", str(clerk.run(says("Good day.")).pk), "Ticket 12", ada, "x")
    said = {"tool": "tool_failure: (erased)", "model": "openai:gpt: the provider failed (503): (erased)"}
    assert last_errors() == {**said, "agent": "run run_1a2b3c failed"}


def test_bounds_of_a_grant_go_with_the_run_it_was_made_from_and_it_is_over(clerk, dana, ada):
    run = clerk.run(calls(call("s", "send", to=NAME)), says("done"))
    [approval] = clerk.open(run)
    grant = grant_from(approval, let_grant(dana), reason=f"{NAME} is ill.")
    actions.revoke_grant(grant_from(approval, dana).pk, f"{NAME} is well.", dana)
    assert not Event.objects.filter(type__startswith="grant.", body__contains=NAME).exists()
    made = Event.objects.filter(type="grant.made").earliest("seq")
    [bound] = [each for each in made.data["constraints"] if each["name"] == "to"]
    assert bound["value"] == sealed.sealed(json.dumps(NAME), approval.salt)
    clerk.decide(approval, dana)
    clerk.drive(run)
    erasing.erase("run", str(run.pk), "Ticket 12", ada, ledger.actor_of(ada))
    assert NAME not in kept()
    assert not grants.standing_grants().filter(pk=grant.pk).exists()
    assert ledger.verify()[1] is None
