"""Speaking with customers through the API: what a program can pass on for them, and what it cannot."""

import uuid
from typing import Any

import pytest
from django.contrib.auth.models import User

from agentapp import actions, auth, erasing
from agentapp.models import ApiToken, Conversation, CustomerLink, Run
from approvals.models import Approval
from tests.agentapp.customers_at_work import customer_rule
from tests.conftest import Clerk, call, calls, says
from tests.rows import events

OPEN = {"agent": "clerk", "key": "chat-1", "customer": "40117"}
PAY = calls(call("p", "pay", account="secret-account", amount=5), text="I propose to pay.")
INTERNAL = ("secret-account", "pay-confirmed", "arguments", "sam", "Sam", "run_", "starter")


@pytest.fixture
def shop(client_of: Any, clerk: Clerk, sam: User) -> Any:
    return client_of(sam, "conversations:write")


@pytest.fixture
def chat(shop: Any) -> str:
    opened = shop.post("/conversations", OPEN)
    assert opened.status == 201
    return f"/conversations/{opened.data['id']}"


def script(clerk: Clerk, *replies: dict[str, Any]) -> None:
    clerk.agent.driver_settings = {"script": list(replies)}
    clerk.agent.save()


def drive(clerk: Clerk) -> Run:
    return clerk.drive(Run.objects.latest("created_at"))


def test_a_conversation_is_opened_once_and_by_whom_is_on_record(shop: Any) -> None:
    opened, again = shop.post("/conversations", OPEN), shop.post("/conversations", OPEN)
    assert (opened.status, again.status, opened.data["id"]) == (201, 200, again.data["id"])
    assert (opened.data["mode"], opened.data["status"], opened.data["messages"]) == ("auto", "idle", [])
    assert events(f"conversation:{opened.data['id']}") == ["conversation.channel_opened"]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"customer": "40118"}, "conversation_exists"),
        ({"agent": "nobody"}, "unknown_agent"),
        ({"key": " "}, "invalid"),
        ({"customer": " "}, "invalid"),
    ],
)
def test_what_cannot_be_opened(shop: Any, chat: str, changed: dict[str, str], code: str) -> None:
    assert shop.post("/conversations", {**OPEN, **changed}).code == code


def test_a_message_without_a_text_is_refused_by_the_name_that_a_text_has(shop: Any, chat: str) -> None:
    refused = shop.post(f"{chat}/messages", {"text": " "})
    assert (refused.status, refused.data["field"], refused.data["detail"]) == (422, "text", "The text is empty.")


def test_the_customer_writes_and_reads_the_answer_and_nothing_internal(shop: Any, chat: str, clerk: Clerk) -> None:
    script(clerk, calls(call("l", "look_up", what="secret-account")), says("It is on its way."))
    wrote = shop.post(f"{chat}/messages", {"text": "Where is it?"}, **{"Idempotency-Key": "k"})
    assert (wrote.status, wrote.data["status"], wrote.data["version"]) == (201, "queued", 1)
    again = shop.post(f"{chat}/messages", {"text": "Where is it?"}, **{"Idempotency-Key": "k"})
    assert (again.status, again.headers["Idempotent-Replay"], Run.objects.count()) == (200, "true", 1)
    assert drive(clerk).customer == "40117"
    read = shop.get(f"{chat}/customer")
    assert [(said["who"], said["text"]) for said in read.data["messages"]] == [
        ("customer", "Where is it?"), ("agent", "It is on its way."),
    ]  # fmt: skip
    assert read.data["status"] == "idle"
    assert not [word for word in INTERNAL if word in str(read.data)]


def test_what_is_personal_in_their_conversation_is_shown_to_the_customer(shop: Any, chat: str, clerk: Clerk) -> None:
    """As their page and their stream do, even if the person whose program speaks for them may see no personal data."""
    script(clerk, says("I write to ana.maria@mail.example then."))
    wrote = shop.post(f"{chat}/messages", {"text": "I am ana.maria@mail.example."}, **{"Idempotency-Key": "k"})
    drive(clerk)
    read = shop.get(f"{chat}/customer")
    assert [said["text"] for said in (*wrote.data["messages"], *read.data["messages"][1:])] == [
        "I am ana.maria@mail.example.", "I write to ana.maria@mail.example then.",
    ]  # fmt: skip


def test_a_version_that_is_behind_sends_nothing(shop: Any, chat: str) -> None:
    assert shop.post(f"{chat}/messages", {"text": "One", "conversation_version": 0}).status == 201
    refused = shop.post(f"{chat}/messages", {"text": "Two", "conversation_version": 0})
    assert (refused.status, refused.code) == (409, "conversation_changed")


def test_the_customer_confirms_what_they_were_shown(shop: Any, chat: str, clerk: Clerk) -> None:
    customer_rule()
    script(clerk, PAY, says("It is paid."))
    shop.post(f"{chat}/messages", {"text": "Pay me."})
    drive(clerk)
    read = shop.get(f"{chat}/customer").data
    [asked] = read["confirmations"]
    assert read["status"] == "confirmation"
    answer = {"answer_id": str(uuid.uuid4()), "yes": True, "version": asked["version"]}
    answer |= {"action_digest": asked["action_digest"]}
    where = f"{chat}/confirmations/{asked['id']}"
    assert shop.post(where, {**answer, "action_digest": "0"}).code == "action_changed"
    taken = shop.post(where, answer)
    assert (taken.status, taken.data["confirmations"]) == (200, [])
    assert shop.post(where, answer).headers["Idempotent-Replay"] == "true"
    second = shop.post(where, {**answer, "answer_id": str(uuid.uuid4()), "yes": False})
    assert (second.status, second.data["decided_by"]) == (409, {"username": None, "name": "The customer"})
    assert drive(clerk).answer == "It is paid."


def test_nobody_on_the_staff_confirms_over_the_api(shop: Any, chat: str, clerk: Clerk, deciding: Any) -> None:
    customer_rule()
    script(clerk, PAY, says("It is paid."))
    shop.post(f"{chat}/messages", {"text": "Pay me."})
    drive(clerk)
    approval = Approval.objects.get()
    read = deciding.get(f"/approvals/{approval.pk}").data
    assert (read["kind"], read["you_may_decide"]) == ("confirmation", False)
    body = {"decision_id": str(uuid.uuid4()), "type": "approve", "version": 1, "action_digest": approval.action_digest}
    refused = deciding.post(f"/approvals/{approval.pk}/decisions", body)
    assert (refused.status, refused.code) == (403, "customer_decides")


def test_what_people_authorize_is_nothing_a_customer_can_answer(shop: Any, chat: str, clerk: Clerk) -> None:
    script(clerk, PAY, says("It is paid."))
    shop.post(f"{chat}/messages", {"text": "Pay me."})
    drive(clerk)
    read = shop.get(f"{chat}/customer").data
    assert (read["status"], read["status_words"]) == ("checking", "Checking with a colleague")
    assert read["confirmations"] == []
    approval = Approval.objects.get()
    answer = {"answer_id": str(uuid.uuid4()), "yes": True, "version": 1, "action_digest": approval.action_digest}
    assert shop.post(f"{chat}/confirmations/{approval.pk}", answer).status == 404


def test_the_customer_asks_for_a_person_and_what_they_say_is_kept(
    shop: Any, chat: str, clerk: Clerk, sam: User
) -> None:
    assert shop.post(f"{chat}/hand_over").code == "nothing_said"
    script(clerk, says("Hello."))
    shop.post(f"{chat}/messages", {"text": "Hello?"})
    run = drive(clerk)
    handed = shop.post(f"{chat}/hand_over")
    assert (handed.data["mode"], handed.data["status"]) == ("manual", "person_wanted")
    assert shop.post(f"{chat}/messages", {"text": "Anybody?"}).status == 202
    actions.take_over_run(run.pk, sam)
    actions.write_message(run.pk, "I am here.", sam)
    read = shop.get(f"{chat}/customer").data
    assert (read["status"], read["messages"][-1]["who"]) == ("person", "person")
    assert "Sam" not in str(read)


def test_who_writes_too_fast_waits(shop: Any, chat: str, settings: Any) -> None:
    settings.CUSTOMER_MESSAGES_PER_MINUTE = 2
    assert [shop.post(f"{chat}/messages", {"text": "x"}).status for _ in range(3)] == [201, 201, 429]


def test_where_too_much_is_under_way_they_are_asked_to_come_back(shop: Any, chat: str, settings: Any) -> None:
    settings.OPEN_RUNS_PER_PERSON = 1
    assert shop.post(f"{chat}/messages", {"text": "x"}).status == 201
    refused = shop.post(f"{chat}/messages", {"text": "y"})
    assert (refused.status, refused.code) == (429, "too_many_runs")
    assert refused.data["detail"] == "Too much is under way here at the moment. Send it again later."


def test_a_link_is_made_and_taken_back(shop: Any, chat: str) -> None:
    made = shop.post(f"{chat}/links", {"hours": 2})
    assert (made.status, "/talk/" in made.data["url"]) == (201, True)
    assert shop.http.get(made.data["url"]).status_code == 200
    assert shop.send("DELETE", f"{chat}/links/{made.data['id']}").status == 200
    assert shop.http.get(made.data["url"]).status_code == 410
    assert shop.send("DELETE", f"{chat}/links/{uuid.uuid4()}").status == 404
    assert CustomerLink.objects.count() == 1


def test_a_link_is_worth_nothing_once_the_token_it_was_made_with_is_revoked(shop: Any, chat: str) -> None:
    made = shop.post(f"{chat}/links", {"hours": 720})
    token = CustomerLink.objects.get().token
    assert token is not None
    auth.revoke_token(token, "ada")
    assert shop.http.get(made.data["url"]).status_code == 410


def test_the_scope_opens_this_and_nothing_else(shop: Any, chat: str, client_of: Any, sam: User) -> None:
    assert shop.get("/runs").code == "insufficient_scope"
    assert shop.get(chat).code == "insufficient_scope"
    other = client_of(sam, "runs:create", "runs:read")
    for answer in (other.post("/conversations", OPEN), other.get(f"{chat}/customer")):
        assert answer.code == "insufficient_scope"
    assert all(token.starts_runs for token in ApiToken.objects.all())


def test_a_conversation_that_was_not_opened_for_its_customer_is_not_there(shop: Any, clerk: Clerk) -> None:
    clerk.start(says("Hello."), conversation="ticket-7", customer="Ana")
    hidden = Conversation.objects.get(key="ticket-7")
    assert shop.get(f"/conversations/{hidden.pk}/customer").status == 404
    assert shop.post(f"/conversations/{hidden.pk}/messages", {"text": "Hello"}).status == 404


def test_another_persons_conversation_is_not_there(
    chat: str, client_of: Any, otto: User, clerk: Clerk, sam: User
) -> None:
    script(clerk, says("Hello."))
    client_of(sam, "conversations:write").post(f"{chat}/messages", {"text": "Hello"})
    assert client_of(otto, "conversations:write").get(f"{chat}/customer").status == 404


def test_a_token_that_speaks_for_customers_decides_nothing(client_of: Any, sam: User) -> None:
    with pytest.raises(Exception, match="cannot decide"):
        client_of(sam, "conversations:write", "approvals:decide")


def test_an_erased_conversation_is_gone_for_the_program_and_its_name_opens_another(
    shop: Any, chat: str, clerk: Clerk, ada: User
) -> None:
    script(clerk, says("Good day."))
    shop.post(f"{chat}/messages", {"text": "I am Mirabel."})
    drive(clerk)
    erasing.erase("customer", "40117", "Request 12", ada, "ada")

    assert shop.post(f"{chat}/messages", {"text": "My address is Elm Street 5."}).code == "not_found"
    assert shop.get(f"{chat}/customer").code == "not_found"
    refused = shop.post("/conversations", {**OPEN, "key": Conversation.objects.get().key})
    assert (refused.status, refused.code) == (409, "erased")
    assert Run.objects.get().erased_at is not None

    another = shop.post("/conversations", OPEN)
    assert another.status == 201
    assert f"/conversations/{another.data['id']}" != chat
