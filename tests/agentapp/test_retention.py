"""What is too old is deleted, and a current conversation is not, even if both belong to one run."""

import datetime

import pytest
from django.db import connection
from django.utils import timezone

from agentapp import actions, conversations, retention
from agentapp.actions import NewRun
from agentapp.models import Conversation, Message, Run
from approvals import ledger
from approvals.sealed import ERASED
from tests.conftest import says

LONG_AGO = datetime.timedelta(days=31)


@pytest.fixture(autouse=True)
def kept_for_30_days(settings):
    settings.RETENTION_DAYS = {"content": 30, "notifications": 0, "evals": 0}


def said() -> list[str]:
    return list(Message.objects.order_by("seq").values_list("content", flat=True))


def ended_long_ago(clerk, **more) -> Run:
    """A run whose input and answer are as old as its end."""
    run = clerk.run(says("Hello."), **{"input": "Hi, Ana here", "conversation": "t-7", "customer": "Ana", **more})
    Run.objects.filter(pk=run.pk).update(finished_at=timezone.now() - LONG_AGO)
    run.messages.update(created_at=timezone.now() - LONG_AGO)
    return run


def customer_says(text: str, sam) -> None:
    actions.start_run_once(NewRun("clerk", text, conversation="t-7", customer="Ana"), sam)


def test_what_is_said_to_a_person_on_a_run_that_ended_long_ago_stays_with_what_was_said_before(clerk, sam, ada):
    earlier, run = ended_long_ago(clerk), ended_long_ago(clerk, input="And again")
    actions.take_over_run(run.pk, ada)
    customer_says("My new street is 5 Elm Road", sam)
    actions.write_message(run.pk, "Thank you, noted.", ada)
    everything = said()
    assert retention.apply() == {}
    assert retention.preview()[0].is_nothing
    assert said() == everything
    actions.hand_back_run(run.pk, ada)
    retention.apply()
    assert said() == [ERASED, ERASED, *everything[2:]]
    earlier.refresh_from_db()
    assert earlier.erased_by == "retention"


def test_what_a_person_has_taken_over_a_moment_ago_is_there_to_be_read(clerk, ada):
    run = ended_long_ago(clerk)
    actions.take_over_run(run.pk, ada)
    assert retention.apply() == {}


def test_what_waits_for_a_person_stays(clerk):
    run = ended_long_ago(clerk)
    with ledger.transaction():
        conversations.want_person(run.conversation, Conversation.Wants.CUSTOMER, {})
    assert retention.apply() == {}
    Conversation.objects.update(person_wanted_at=timezone.now() - LONG_AGO)
    assert retention.apply() == {"runs": 1, "messages": 2}


def test_a_conversation_that_nobody_hands_back_is_kept_no_longer_than_others(clerk, sam, ada):
    run = ended_long_ago(clerk)
    actions.take_over_run(run.pk, ada)
    customer_says("My new street is 5 Elm Road", sam)
    Run.objects.update(taken_over_at=timezone.now() - LONG_AGO)
    assert retention.apply() == {}
    Message.objects.update(created_at=timezone.now() - LONG_AGO)
    assert retention.apply() == {"runs": 1, "messages": 3}
    assert set(said()) == {ERASED}


def test_a_run_that_is_taken_over_as_it_is_about_to_go_stays(clerk, ada, monkeypatch):
    run = ended_long_ago(clerk)
    look, taken = retention.runs.lock_parent, []

    def be_overtaken(run_id):
        if not taken:
            taken.append(actions.take_over_run(run.pk, ada))
        look(run_id)

    monkeypatch.setattr(retention.runs, "lock_parent", be_overtaken)
    assert retention.apply() == {}
    assert (len(taken), said()) == (1, ["Hi, Ana here", "Hello."])


def test_what_is_said_on_a_run_that_is_erased_goes_once_it_is_old_itself(clerk, sam, ada):
    run = ended_long_ago(clerk)
    assert retention.apply() == {"runs": 1, "messages": 2}
    actions.take_over_run(run.pk, ada)
    customer_says("My IBAN is on file, I live at 7 Oak", sam)
    actions.write_message(run.pk, "Dear Ana of 7 Oak.", ada)
    actions.hand_back_run(run.pk, ada)
    assert retention.apply() == {}
    Message.objects.filter(content__startswith="My").update(created_at=timezone.now() - LONG_AGO)
    assert retention.preview()[0].counts["messages"] == 1
    assert retention.apply() == {"messages": 1}
    assert said() == [ERASED, ERASED, ERASED, "Dear Ana of 7 Oak."]
    Message.objects.update(created_at=timezone.now() - LONG_AGO)
    assert retention.apply() == {"messages": 1}
    assert set(said()) == {ERASED}
    assert retention.preview()[0].is_nothing
    assert retention.apply() == {}
    assert ledger.verify()[1] is None


def test_what_was_said_long_ago_on_an_erased_run_stays_while_a_person_goes_on_with_it(clerk, sam, ada):
    run = ended_long_ago(clerk)
    retention.apply()
    actions.take_over_run(run.pk, ada)
    customer_says("I live at 7 Oak", sam)
    Message.objects.update(created_at=timezone.now() - LONG_AGO)
    Run.objects.update(taken_over_at=timezone.now() - LONG_AGO)
    actions.write_message(run.pk, "Dear Ana.", ada)
    assert retention.apply() == {}
    assert retention.preview()[0].is_nothing


@pytest.mark.postgresql
def test_what_was_said_after_an_erasure_is_looked_for_among_what_is_not_erased(clerk):
    run = ended_long_ago(clerk)
    Run.objects.update(erased_at=timezone.now(), erased_by="retention")
    columns = "conversation_id, role, created_at"
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO agentapp_message (id, run_id, seq, content, {columns})"
            f" SELECT gen_random_uuid(), run_id, 100 + number, %s, {columns}"
            " FROM agentapp_message, generate_series(1, 20000) number WHERE run_id = %s AND seq = 1",
            [ERASED, run.pk],
        )
        cursor.execute("ANALYZE agentapp_message")
    late = retention._said_since(timezone.now() - datetime.timedelta(days=30))
    assert late.count() == 2
    for found in (late, Run.objects.filter(pk__in=late.values("run"))):
        assert "message_kept" in found.explain()
