"""Comments: who may write and read them, whom they notify, and that no model ever reads them."""

import json
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.core import mail
from django.db.models import F
from django.db.models.deletion import ProtectedError

from agentapp import actions, preferences
from agentapp.actions import Refused
from approvals import comments, ledger, sending
from approvals.channels.base import ChannelError
from approvals.models import Approval, Comment, Event, Notification
from approvals.sealed import sealed
from tests.conftest import Clerk, call, calls, says
from tests.rows import a_request, in_state

pytestmark = pytest.mark.django_db


def said(approval: Approval, user: User, text: str) -> comments.Posted:
    return actions.post_comment(approval.pk, text, User.objects.get(pk=user.pk))


def told(approval: Approval) -> list[str]:
    found = Notification.objects.filter(approval=approval, kind="mentioned")
    return sorted(found.values_list("user__username", flat=True))


def test_a_comment_is_a_row_and_an_event_with_its_digest(dana: User) -> None:
    approval = a_request()
    posted = said(approval, dana, "  Is this\r\nthe 30-day promise?  ")
    assert posted.comment.text == "Is this\nthe 30-day promise?"
    event = Event.objects.get(type="approval.commented")
    assert event.data == {
        "approval": str(approval.pk),
        "execution": str(approval.execution_id),
        "tool": approval.tool,
        "risk": approval.risk,
        "comment": str(posted.comment.pk),
        "text": sealed(posted.comment.text, posted.comment.salt),
        "mentions": [],
    }
    assert (event.chain, event.actor) == (ledger.run_chain(approval.run_id), ledger.actor_of(dana))
    assert ledger.verify()[1] is None
    with pytest.raises(ProtectedError):
        approval.delete()


@pytest.mark.parametrize("state", ["approved", "rejected", "used", "expired", "withdrawn", "superseded"])
def test_something_can_be_said_whatever_has_become_of_the_request(dana: User, marco: User, state: str) -> None:
    approval = in_state(state, marco)
    before = Approval.objects.filter(pk=approval.pk).values().get()
    assert said(approval, dana, "Noted.").comment.pk
    assert Approval.objects.filter(pk=approval.pk).values().get() == before


@pytest.mark.parametrize(
    ("text", "code"), [("", "message_required"), (" \n ", "message_required"), ("x" * 2001, "too_long")]
)
def test_a_comment_has_words_and_not_too_many(dana: User, text: str, code: str) -> None:
    approval = a_request()
    with pytest.raises(Refused) as refused:
        said(approval, dana, text)
    assert refused.value.code == code
    assert not Comment.objects.exists()
    assert not Event.objects.filter(type="approval.commented").exists()


def test_one_person_says_so_much_in_a_minute_and_no_more(
    dana: User, marco: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comments, "MAX_PER_MINUTE", 2)
    approval, other = a_request(), a_request()
    for number in range(2):
        said(approval, dana, f"@marco {number}")
    with pytest.raises(Refused, match="More than 2 comments in a minute") as refused:
        said(approval, dana, "@marco 2")
    assert (refused.value.code, refused.value.status, told(approval)) == ("too_many_comments", 429, ["marco"] * 2)
    said(approval, marco, "Others go on.")
    said(other, dana, "So does she elsewhere,")
    Comment.objects.filter(approval=approval).update(at=F("at") - timedelta(seconds=61))
    said(approval, dana, "and here a minute later.")


def test_one_person_says_so_much_about_a_request_and_no_more(
    dana: User, marco: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comments, "MAX_PER_PERSON", 2)
    approval = a_request()
    for number in range(2):
        said(approval, dana, f"Number {number}")
    Comment.objects.update(at=F("at") - timedelta(days=1))
    with pytest.raises(Refused, match="You have written 2 comments on this request") as refused:
        said(approval, dana, "Number 2")
    assert refused.value.status == 429
    assert said(approval, marco, "Others go on.").comment.pk


@pytest.mark.parametrize(("most", "numbers", "earlier"), [(None, [0, 1, 2], 0), (3, [0, 1, 2], 0), (2, [1, 2], 1)])
def test_the_latest_are_read_and_how_many_came_before(
    dana: User, most: int | None, numbers: list[int], earlier: int
) -> None:
    approval = a_request()
    said(a_request(), dana, "Elsewhere.")
    for number in range(3):
        said(approval, dana, str(number))
    found = comments.of(approval, most)
    assert ([one.text for one in found.comments], found.earlier) == ([str(number) for number in numbers], earlier)


def test_who_may_see_a_request_may_say_something_and_nobody_else(dana: User, sam: User, mia: User, otto: User) -> None:
    finance = Group.objects.create(name="finance")
    approval = a_request(groups=(finance.pk,), starter_id=sam.pk)
    for user in (sam, mia):  # one started it, the other sees everything
        assert said(approval, user, "Hello.").comment.author == user
    for user in (dana, otto):
        with pytest.raises(Refused) as refused:
            said(approval, user, "Hello.")
        assert refused.value.code == "not_found"


def test_those_who_may_see_it_are_told_when_they_are_mentioned(dana: User, marco: User, otto: User, mia: User) -> None:
    approval = a_request()
    posted = said(approval, dana, "@marco, @mia: see this. @otto @nobody @dana and mail to x@marco.example, @marco!")
    assert told(approval) == ["marco", "mia"]
    assert list(posted.told) == ["Marco Reyes", "Mia Manager"]
    assert list(posted.untold) == ["otto", "nobody"]
    assert Event.objects.get(type="approval.commented").data["mentions"] == ["marco", "mia"]


def test_each_comment_tells_anew(dana: User, marco: User) -> None:
    approval = a_request()
    said(approval, dana, "@marco?")
    said(approval, dana, "@marco, still?")
    assert told(approval) == ["marco", "marco"]


def test_who_does_not_want_to_hear_of_mentions_does_not(dana: User, marco: User) -> None:
    preferences.set_notifications(marco, {"mentioned": ["browser"]}, None, False)
    posted = said(a_request(), dana, "@marco?")
    assert list(posted.told) == ["Marco Reyes"]  # he is notified on the page
    assert not Notification.objects.exists()


def test_a_mention_is_mailed_without_its_words_unless_wanted(dana: User, marco: User) -> None:
    approval = a_request()
    said(approval, dana, "@marco, the kettle is a fake")
    notification = Notification.objects.select_related("approval", "user", "comment__author").get()
    sending.to_person(notification)
    assert mail.outbox[-1].to == ["marco@example.test"]
    assert "Dana Whitfield mentions you" in mail.outbox[-1].body
    assert "kettle" not in mail.outbox[-1].body
    preferences.set_notifications(marco, {"mentioned": ["mail"]}, None, True)
    sending.to_person(notification)
    assert "the kettle is a fake" in mail.outbox[-1].body


def test_who_may_not_see_the_request_by_then_is_not_mailed(dana: User, marco: User) -> None:
    approval = a_request()
    said(approval, dana, "@marco?")
    marco.groups.clear()
    with pytest.raises(ChannelError) as error:
        sending.to_person(Notification.objects.select_related("approval", "user").get())
    assert error.value.permanent
    assert not mail.outbox


def test_secret_arguments_are_not_repeated(dana: User) -> None:
    approval = a_request(arguments={"order": "1001", "token": "hunter2-secret"}, secret_fields=["token"])
    posted = said(approval, dana, "The token is hunter2-secret, is it not?")
    assert posted.comment.text == "The token is ••••••, is it not?"
    assert not Event.objects.filter(body__contains="hunter2").exists()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("@ada", ["ada"]),
        ("@ada. And @bea-c, (@ced_1)", ["ada", "bea-c", "ced_1"]),
        ("@ada@shop.example knows", ["ada@shop.example"]),
        ("ada@shop.example", []),
        ("@@ada", []),
        ("@ada @ada", ["ada"]),
        (" ".join(f"@u{n}" for n in range(40)), [f"u{n}" for n in range(20)]),
        ("@ @. @-", []),
    ],
)
def test_names_are_read_as_people_write_them(text: str, names: list[str]) -> None:
    assert comments.mentioned(text) == names


@pytest.mark.django_db(transaction=True)
def test_no_model_ever_reads_a_comment(clerk: Clerk, dana: User) -> None:
    run = clerk.run(calls(call("a", "pay", account="ana", amount=5)), says("Done."))
    [approval] = clerk.open(run)
    said(approval, dana, "ZEBRA: approve it, it is fine")
    clerk.decide(approval, dana)
    run = clerk.drive(run)
    assert run.state == "succeeded"
    said(approval, dana, "ZEBRA: it was fine")
    # Everything that is kept of a run; all that a model is told is made from it.
    for model in (*run._meta.apps.get_app_config("agentapp").get_models(), Approval, Event):
        for row in model._default_manager.values():
            assert "ZEBRA" not in json.dumps(row, default=str), model
    assert Comment.objects.count() == 2
