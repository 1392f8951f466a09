import threading
import uuid
from contextlib import suppress
from datetime import timedelta

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from agentapp.models import ApiToken
from approvals import append_only, configuration, ledger
from approvals.detectors import MASK
from approvals.digest import canonical, load, sha256
from approvals.ids import uuid7
from approvals.ledger import CONFIGURATION, GENESIS, Break
from approvals.models import ChainHead, Channel, Event
from tests.conftest import make_user
from tests.races import HeldUp
from tests.rows import within_transaction

RUN = uuid.UUID("019a0000-0000-7000-8000-000000000001")
OTHER_RUN = uuid.UUID("019a0000-0000-7000-8000-000000000002")
CHAIN, OTHER_CHAIN = ledger.run_chain(RUN), ledger.run_chain(OTHER_RUN)
LENGTH = 12


def tell(chain: str, *types: str) -> None:
    with ledger.transaction():
        for number, type in enumerate(types):
            ledger.record(chain, type, {"number": number, "amount": 240})


def told(chain: str = "shop") -> list[str]:
    return list(Event.objects.filter(chain=chain).order_by("seq").values_list("type", flat=True))


def statements(sent: CaptureQueriesContext) -> list[str]:
    brackets = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE")
    return [query["sql"] for query in sent if not query["sql"].startswith(brackets)]


class Undone(Exception):
    """Raised by a test to make a transaction roll back."""


# --- Recording ---------------------------------------------------------------------------------


@pytest.mark.django_db
def test_events_are_numbered_and_each_holds_the_hash_of_the_one_before():
    tell("shop", "opened", "sold")
    tell("shop", "closed")
    first, second, third = Event.objects.filter(chain="shop").order_by("seq")
    assert [first.seq, second.seq, third.seq] == [1, 2, 3]
    assert [first.previous_hash, second.previous_hash, third.previous_hash] == [GENESIS, first.hash, second.hash]
    assert ledger.verify("shop") == (3, None)


@pytest.mark.django_db
def test_whoever_remembers_the_end_of_a_chain_asks_for_it_once():
    with ledger.remembering():
        tell("shop", "opened")
        with CaptureQueriesContext(connection) as sent:
            tell("shop", "sold", "closed")
    assert [query["sql"] for query in sent if query["sql"].startswith("SELECT")] == []
    assert ledger.verify("shop") == (3, None)


@pytest.mark.django_db
def test_a_remembered_end_that_somebody_else_has_moved_is_read_anew():
    with ledger.remembering():
        tell("shop", "opened")
        with ledger.remembering():  # as in another worker, which knows nothing of this one's
            tell("shop", "sold")
        tell("shop", "closed")
    assert told() == ["opened", "sold", "closed"]
    assert ledger.verify("shop") == (3, None)


@pytest.mark.django_db
@pytest.mark.parametrize("types", [["sold"], ["sold", "closed", "opened"]])
def test_events_behind_a_known_end_take_one_statement_more_than_their_transition(types, vendor):
    tell("shop", "opened")
    head = ChainHead.objects.get(chain="shop")
    with CaptureQueriesContext(connection) as sent, ledger.transaction():
        ledger.knows("shop", head.seq, head.hash)
        for type in types:
            ledger.record("shop", type, {})
    assert len(statements(sent)) == (1 if vendor == "postgresql" else 2)
    assert told() == ["opened", *types]
    assert ledger.verify("shop") == (1 + len(types), None)


@pytest.mark.django_db
def test_a_chain_that_is_known_to_be_new_is_begun_in_one_statement(vendor):
    with CaptureQueriesContext(connection) as sent, ledger.transaction():
        ledger.knows("shop", None, None)
        ledger.record("shop", "opened", {})
    assert not any("SELECT" in sql[:6] for sql in statements(sent)) or vendor == "sqlite"
    assert len(statements(sent)) <= (1 if vendor == "postgresql" else 3)
    assert ledger.verify("shop") == (1, None)


@pytest.mark.django_db
@pytest.mark.parametrize("end", [(None, None), (1, "0" * 64), (7, "0" * 64)])
def test_an_end_that_is_told_wrong_is_read_and_nothing_is_written_behind_it(end):
    tell("shop", "opened")
    with ledger.transaction():
        ledger.knows("shop", *end)
        ledger.record("shop", "sold", {})
    assert told() == ["opened", "sold"]
    assert ledger.verify("shop") == (2, None)


@pytest.mark.postgresql
@pytest.mark.django_db
@pytest.mark.parametrize("events", [1, ledger.MOST_AT_ONCE + 1])
@pytest.mark.parametrize("end", ["known", "unknown", "moved"])
def test_nothing_is_done_behind_a_change_of_the_configuration_it_went_by(end, events):
    """Here another transaction began earlier: it is noticed if it commits while this one waits for something."""
    tell("shop", "opened")
    tell(ledger.CONFIGURATION, "changed")
    head, height = ChainHead.objects.get(chain="shop"), ledger.height()
    if end == "moved":
        tell("shop", "closed", "opened")

    def begin(at: int) -> None:
        with ledger.transaction():
            if end != "unknown":
                ledger.knows("shop", head.seq, head.hash)
            ChainHead.objects.create(chain=f"made at {at}", seq=1, hash="")
            for _ in range(events):
                ledger.record("shop", "sold")
            ledger.only_at(at)

    before = told()
    with pytest.raises(ledger.Configured):
        begin(height - 1)
    assert (told(), ChainHead.objects.filter(chain__startswith="made").exists()) == (before, False)
    begin(height)
    assert told() == [*before, *["sold"] * events]
    assert ledger.verify("shop")[1] is None


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("events", [1, ledger.MOST_AT_ONCE + 1])
@pytest.mark.parametrize("end", ["known", "unknown"])
@pytest.mark.parametrize("changed", [True, False])
def test_nothing_is_done_behind_a_change_that_was_made_while_a_checkpoint_held_the_end_of_the_chain(
    end, events, changed, monkeypatch
):
    """Whether the checkpoint covers the chain in the end, or fails: the end itself stays where it was."""
    tell("shop", "opened")
    tell(ledger.CONFIGURATION, "changed")
    head, height = ChainHead.objects.get(chain="shop"), ledger.height()
    there = ChainHead.objects.filter(chain="shop")

    def cover() -> None:
        there.select_for_update().get()
        if changed:
            there.update(covered_seq=F("seq"), uncovered=False)

    def begin() -> None:
        with ledger.transaction():
            if end == "known":
                ledger.knows("shop", head.seq, head.hash)
            for _ in range(events):
                ledger.record("shop", "sold")
            ledger.only_at(height)

    meanwhile = HeldUp(cover, lambda: tell(ledger.CONFIGURATION, "stopped"), ledger._append)
    monkeypatch.setattr(ledger, "_append", meanwhile)
    with pytest.raises(ledger.Configured):
        begin()
    meanwhile.done()
    assert told() == ["opened"]


@pytest.mark.postgresql
@pytest.mark.django_db
@pytest.mark.parametrize("end", ["known", "unknown"])
def test_who_signs_in_or_out_meanwhile_keeps_nothing_from_being_done(end):
    tell("shop", "opened")
    head, height = ChainHead.objects.get(chain="shop"), ledger.height()
    tell(ledger.CONFIGURATION, "signin.failed", "signin.succeeded", "signout")
    with ledger.transaction():
        if end == "known":
            ledger.knows("shop", head.seq, head.hash)
        ledger.record("shop", "sold")
        ledger.only_at(height)
    assert told() == ["opened", "sold"]
    assert ledger.verify("shop") == (2, None)


@pytest.mark.django_db
def test_to_go_by_a_configuration_asks_nothing_more_behind_a_known_end(vendor):
    tell("shop", "opened")
    head = ChainHead.objects.get(chain="shop")
    with CaptureQueriesContext(connection) as sent, ledger.transaction():
        ledger.knows("shop", head.seq, head.hash)
        ledger.only_at(0)
        ledger.record("shop", "sold")
    assert len(statements(sent)) == (1 if vendor == "postgresql" else 2)


def test_to_go_by_a_configuration_outside_of_a_transaction_is_an_error():
    with pytest.raises(RuntimeError):
        ledger.only_at(0)


@pytest.mark.django_db
def test_what_is_told_outside_of_a_transaction_is_forgotten():
    ledger.knows("shop", 7, "0" * 64)
    tell("shop", "opened")
    assert told() == ["opened"]


@pytest.mark.django_db
def test_an_end_is_not_remembered_of_what_was_undone():
    with ledger.remembering():
        tell("shop", "opened")
        with suppress(Undone), ledger.transaction():
            ledger.record("shop", "sold", {})
            raise Undone
        with suppress(Undone), transaction.atomic():
            tell("shop", "sold")
            raise Undone
        tell("shop", "closed")
    assert told() == ["opened", "closed"]
    assert ledger.verify("shop") == (2, None)


@pytest.mark.django_db
def test_an_event_can_be_checked_with_a_hash_function_alone():
    tell(CHAIN, "run.queued")
    event = Event.objects.get(chain=CHAIN)
    body = load(event.body)
    assert event.hash == sha256(event.body) == sha256(canonical(body))
    assert body["previous"] == GENESIS
    assert (event.run_id, event.data) == (RUN, {"amount": 240, "number": 0})


@pytest.mark.django_db
def test_chains_are_numbered_apart():
    tell(CHAIN, "a", "b")
    tell(OTHER_CHAIN, "a")
    tell(CHAIN, "c")
    assert (ledger.height(CHAIN), ledger.height(OTHER_CHAIN), ledger.height()) == (3, 1, 0)
    assert ledger.verify() == (4, None)


@pytest.mark.django_db
def test_facts_of_several_chains_in_one_transaction_keep_their_order():
    with ledger.transaction():
        for chain, type in [("one", "a"), ("two", "b"), ("one", "c"), ("two", "d")]:
            ledger.record(chain, type)
    assert (told("one"), told("two")) == (["a", "c"], ["b", "d"])


@pytest.mark.django_db
def test_recording_outside_of_a_transaction_is_an_error():
    with pytest.raises(RuntimeError, match="belongs to the transaction"):
        ledger.record("shop", "opened")
    with transaction.atomic(), pytest.raises(RuntimeError):
        ledger.record("shop", "opened")
    with ledger.transaction():
        pass
    with pytest.raises(RuntimeError):
        ledger.record("shop", "opened")


@pytest.mark.django_db
def test_a_rollback_drops_the_facts_with_the_changes():
    with suppress(Undone), ledger.transaction():
        Channel.objects.create(name="mail", kind="email")
        ledger.record("shop", "opened")
        raise Undone
    assert not Channel.objects.exists()
    assert told() == []
    tell("shop", "opened")
    assert told() == ["opened"]


@pytest.mark.django_db
def test_an_inner_rollback_keeps_the_outer_facts_and_changes():
    with ledger.transaction():
        ledger.record("shop", "before")
        with suppress(Undone), ledger.transaction():
            Channel.objects.create(name="lost", kind="email")
            ledger.record("shop", "lost")
            with ledger.transaction():
                ledger.record("shop", "lost deeper")
            raise Undone
        with ledger.transaction():
            Channel.objects.create(name="kept", kind="email")
            ledger.record("shop", "inner")
        ledger.record("shop", "after")
    assert told() == ["before", "inner", "after"]
    assert [channel.name for channel in Channel.objects.all()] == ["kept"]
    assert ledger.verify("shop") == (3, None)


@pytest.mark.django_db
def test_an_outer_rollback_drops_what_inner_transactions_recorded():
    with suppress(Undone), ledger.transaction():
        with ledger.transaction():
            ledger.record("shop", "inner")
        raise Undone
    assert told() == []


@pytest.mark.django_db
def test_a_fact_that_has_no_canonical_form_rolls_its_change_back():
    def open_shop() -> None:
        Channel.objects.create(name="mail", kind="email")
        ledger.record("shop", "opened", {"amount": float("nan")})

    with pytest.raises(ValueError, match="canonical"):
        within_transaction(open_shop)
    assert not Channel.objects.exists()
    assert told() == []


@pytest.mark.django_db
def test_two_writers_that_forgot_the_lock_cannot_both_take_a_place():
    tell(CHAIN, "a")
    first = Event.objects.get(chain=CHAIN)
    with pytest.raises(IntegrityError), transaction.atomic():
        Event.objects.create(
            chain=CHAIN, seq=1, type="b", actor="x", at=first.at, body="{}", hash="0", previous_hash="0"
        )


@pytest.mark.django_db
def test_an_actor_with_the_longest_names_fits(roles):
    user = make_user("Sam Operator")
    user.username = "s" * 150
    tell_by = ledger.actor_of(user, f"token {'t' * 80}")
    with ledger.transaction():
        ledger.record("shop", "opened", actor=tell_by)
    assert Event.objects.get().actor.startswith(f"user:{user.pk}:sss")
    assert ledger.verify() == (1, None)


@pytest.mark.django_db
def test_a_very_long_text_is_still_one_intact_event():
    with ledger.transaction():
        ledger.record("shop", "approval.rejected", {"message": "no " * 200_000, "size": 1e20})
    assert ledger.verify("shop") == (1, None)
    assert len(Event.objects.get().data["message"]) == 600_000


# --- Attacks -----------------------------------------------------------------------------------


@pytest.fixture
def chain(db) -> list[Event]:
    """Twelve events of one run, six of another, and nothing prevents changing them."""
    tell(CHAIN, *[f"step.{number}" for number in range(LENGTH)])
    tell(OTHER_CHAIN, *[f"step.{number}" for number in range(LENGTH)])
    assert ledger.verify() == (2 * LENGTH, None)
    append_only.remove(connection)
    return list(Event.objects.filter(chain=CHAIN).order_by("seq"))


def found() -> Break:
    held, broken = ledger.verify()
    assert broken is not None
    assert held == broken.seq - 1 or "is missing" in broken.problem
    return broken


def at(place: int, chain: str = CHAIN):
    return Event.objects.filter(chain=chain, seq=place)


def resealed(event: Event, **changes) -> dict[str, str]:
    """Body and hash as an attacker who knows the format would write them."""
    body = canonical(load(event.body) | changes)
    return {"body": body, "hash": sha256(body)}


EVERY_PLACE = range(1, LENGTH + 1)
BEFORE_THE_LAST = range(1, LENGTH)


@pytest.mark.parametrize("place", EVERY_PLACE)
def test_an_edited_text_is_found(chain, place):
    at(place).update(body=chain[place - 1].body.replace("240", "999"))
    assert found() == Break(CHAIN, place, "its text does not match its hash")


@pytest.mark.parametrize("place", EVERY_PLACE)
@pytest.mark.parametrize(
    "change",
    [
        {"type": "approval.approved"},
        {"actor": "user:1:mallory"},
        {"at": F("at") + timedelta(days=1)},
        {"run_id": OTHER_RUN},
        {"run_id": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_an_edited_column_is_found(chain, place, change):
    at(place).update(**change)
    broken = found()
    assert (broken.chain, broken.seq) == (CHAIN, place)


@pytest.mark.parametrize("place", EVERY_PLACE)
def test_an_edited_link_is_found(chain, place):
    at(place).update(previous_hash="f" * 64)
    assert found() == Break(CHAIN, place, "it does not follow the event before it")


@pytest.mark.parametrize("place", BEFORE_THE_LAST)
def test_a_deleted_event_is_found_and_named(chain, place):
    at(place).delete()
    assert found() == Break(CHAIN, place + 1, f"event {place} is missing")


@pytest.mark.parametrize("place", range(2, LENGTH + 1))
def test_an_inserted_event_is_found(chain, place):
    """The forged event itself is properly sealed; the next one gives it away."""
    for seq in range(LENGTH, place - 1, -1):
        at(seq).update(seq=seq + 1)
    real, before = chain[place - 1], chain[place - 2]
    key = uuid7()
    seal = resealed(real, type="forged", previous=before.hash, id=str(key))
    Event.objects.create(
        id=key,
        chain=CHAIN,
        seq=place,
        type="forged",
        run_id=RUN,
        actor=real.actor,
        at=real.at,
        previous_hash=before.hash,
        actor_key=real.actor_key,
        **seal,
    )
    assert found() == Break(CHAIN, place + 1, "it does not follow the event before it")


@pytest.mark.parametrize("place", BEFORE_THE_LAST)
def test_two_events_in_each_others_place_are_found(chain, place):
    at(place).update(seq=1000)
    at(place + 1).update(seq=place)
    at(1000).update(seq=place + 1)
    broken = found()
    assert (broken.chain, broken.seq) == (CHAIN, place)


@pytest.mark.parametrize("place", BEFORE_THE_LAST)
def test_a_text_edited_with_its_hash_is_found_at_the_next_event(chain, place):
    at(place).update(**resealed(chain[place - 1], data={"amount": 999}))
    assert found() == Break(CHAIN, place + 1, "it does not follow the event before it")


@pytest.mark.parametrize("text", ["[]", "{}", "null", '{"chain":"', "", "[" * 5000])
@pytest.mark.parametrize("place", [1, 7, LENGTH])
def test_a_text_that_is_no_event_is_named_and_does_not_stop_the_check(chain, place, text):
    at(place).update(body=text, hash=sha256(text))
    broken = found()
    assert (broken.chain, broken.seq) == (CHAIN, place)


@pytest.mark.parametrize("place", EVERY_PLACE)
def test_events_of_two_chains_swapped_are_found(chain, place):
    mine, theirs = at(place).get().pk, at(place, OTHER_CHAIN).get().pk
    Event.objects.filter(pk=mine).update(chain="between")
    Event.objects.filter(pk=theirs).update(chain=CHAIN, run_id=RUN)
    Event.objects.filter(pk=mine).update(chain=OTHER_CHAIN, run_id=OTHER_RUN)
    broken = found()
    assert (broken.chain, broken.seq) == (CHAIN, place)


def test_a_chain_renamed_as_a_whole_is_found(chain):
    Event.objects.filter(chain=CHAIN).update(chain="run:no-uuid")
    held, broken = ledger.verify("run:no-uuid")
    assert (held, broken) == (0, Break("run:no-uuid", 1, "its columns do not match its text"))


@pytest.mark.parametrize("kept", [0, 1, LENGTH - 1])
def test_cutting_the_tail_is_found(chain, kept):
    Event.objects.filter(chain=CHAIN, seq__gt=kept).delete()
    missing = Break(CHAIN, kept + 1, f"event {kept + 1} is missing")
    assert ledger.verify(CHAIN) == (kept, missing)
    assert ledger.verify() == (kept, missing)


def test_everything_gone_is_found(chain):
    Event.objects.all().delete()
    assert ledger.verify() == (0, Break(CHAIN, 1, "event 1 is missing"))


def test_a_well_sealed_event_behind_the_last_is_found(chain):
    last, key = chain[-1], uuid7()
    seal = resealed(last, id=str(key), seq=LENGTH + 1, previous=last.hash)
    columns = {name: getattr(last, name) for name in ("chain", "type", "run_id", "actor", "at", "actor_key")}
    Event.objects.create(**columns, id=key, seq=LENGTH + 1, previous_hash=last.hash, **seal)
    assert ledger.verify()[1] == Break(CHAIN, LENGTH + 1, "it was added behind the ledger's back")


def test_a_chain_that_the_ledger_did_not_write_is_found(chain):
    ChainHead.objects.filter(chain=CHAIN).delete()
    assert ledger.verify()[1] == Break(CHAIN, 1, "nothing is known of its chain")


def rewrite(chain: list[Event]) -> str:
    """As somebody would who may change the events table at will. Returns the last hash."""
    previous = GENESIS
    for event in chain:
        seal = resealed(event, data={"amount": 1}, previous=previous)
        at(event.seq).update(previous_hash=previous, **seal)
        previous = seal["hash"]
    return previous


def test_rewriting_the_whole_chain_is_found_where_it_ends(chain):
    rewrite(chain)
    assert ledger.verify(CHAIN)[1] == Break(CHAIN, LENGTH, "it is not the event that its chain ended with")


def test_rewriting_a_chain_and_its_end_is_not_found_without_a_checkpoint(chain):
    """Tests of what checkpoints find are in proof/."""
    ChainHead.objects.filter(chain=CHAIN).update(hash=rewrite(chain))
    assert ledger.verify(CHAIN) == (LENGTH, None)


def test_a_break_is_told_with_the_events_beside_it(chain):
    at(3).update(actor="mallory")
    broken = found()
    assert [told and (told.seq, told.hash) for told in (broken.before, broken.found, broken.after)] == [
        (2, chain[1].hash),
        (3, chain[2].hash),
        (4, chain[3].hash),
    ]
    at(3).delete()
    broken = found()
    assert [told and told.seq for told in (broken.before, broken.found, broken.after)] == [2, 4, 5]


def test_the_first_break_is_named_whichever_kind_it_is(chain):
    """In the order of chains: the one whose events are all gone comes before the one that was edited."""
    at(1, OTHER_CHAIN).update(actor="mallory")
    Event.objects.filter(chain=CHAIN).delete()
    assert ledger.verify()[1] == Break(CHAIN, 1, "event 1 is missing")


def test_the_break_of_one_chain_is_not_the_break_of_another(chain):
    at(3).update(actor="mallory")
    assert ledger.verify(OTHER_CHAIN) == (LENGTH, None)
    assert ledger.verify(CHAIN) == (2, Break(CHAIN, 3, "its columns do not match its text"))


@pytest.mark.django_db
def test_an_empty_ledger_holds():
    assert ledger.verify() == (0, None)


# --- Many writers ------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_eight_threads_write_the_configuration_chain_without_a_gap():
    failures: list[BaseException] = []
    together = threading.Barrier(8)

    def write(number: int) -> None:
        try:
            together.wait(timeout=30)
            for turn in range(50):
                with ledger.transaction():
                    ledger.record(CONFIGURATION, "configuration.changed", {"writer": number, "turn": turn})
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert failures == []
    assert ledger.height() == 400
    assert ledger.verify() == (400, None)
    written = [(event.data["writer"], event.data["turn"]) for event in Event.objects.order_by("seq")]
    assert len(set(written)) == 400
    assert all([turn for who, turn in written if who == number] == list(range(50)) for number in range(8))


@pytest.mark.django_db(transaction=True)
def test_the_database_keeps_the_guard_when_events_are_committed():
    tell("shop", "opened")
    with pytest.raises(DatabaseError, match="append-only"):
        Event.objects.filter(chain="shop").update(type="closed")
    if connection.vendor == "postgresql":
        with pytest.raises(DatabaseError, match="append-only"), connection.cursor() as cursor:
            cursor.execute("TRUNCATE approvals_event CASCADE")
    assert told() == ["opened"]


# --- Configuration -----------------------------------------------------------------------------


@pytest.mark.django_db
def test_secrets_are_never_in_the_events_of_configuration(roles):
    user = make_user("Ada Admin", "admin")
    with ledger.transaction():
        configuration.save(user, "user:1:root")
    token = ApiToken(name="CI", user=user, prefix="cs_abc", digest="d" * 64, scopes=["runs:create"])
    configuration.save(token, "user:1:root")
    token.scopes = ["runs:read"]
    configuration.save(token, "user:1:root")
    user.set_password("another horse battery")
    configuration.save(user, "user:1:root")
    configuration.delete(token, "user:1:root")
    written = "".join(Event.objects.filter(chain=CONFIGURATION).values_list("body", flat=True))
    assert "runs:create" in written
    assert "d" * 64 not in written
    assert user.password not in written


# --- What events are found by -------------------------------------------------------------------

ABOUT = {
    "approval": "019a0000-0000-7000-8000-00000000000a",
    "execution": "019a0000-0000-7000-8000-00000000000b",
    "tool": "refund_order",
    "risk": "high",
    "took_ms": 50_000,
}


def recorded(data: dict[str, object], actor: str = ledger.SYSTEM) -> Event:
    with ledger.transaction():
        ledger.record(CHAIN, "approval.approved", dict(data), actor)
    return Event.objects.filter(chain=CHAIN).latest("seq")


@pytest.mark.django_db
def test_an_event_is_found_by_what_its_text_is_about():
    event = recorded(ABOUT, "user:5:dana (token CI)")
    assert [str(event.approval_id), str(event.execution_id)] == [ABOUT["approval"], ABOUT["execution"]]
    assert (event.tool, event.risk, event.took_ms, event.actor_key) == ("refund_order", "high", 50_000, "user:5")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "data",
    [{}, {"approval": ""}, {"approval": 7, "execution": [1]}, {"tool": None, "risk": {"a": 1}, "took_ms": True},
     {"risk": "more than the column holds", "took_ms": "5"}, {"approval": "x" * 36}],
)  # fmt: skip
def test_what_is_no_key_number_or_name_is_about_nothing(data):
    event = recorded(data)
    found = (event.approval_id, event.execution_id, event.tool, event.risk, event.took_ms)
    assert found == (None, None, "", "", None)
    assert ledger.verify(CHAIN) == (1, None)


@pytest.mark.django_db
def test_who_works_here_is_named_and_what_else_looks_like_an_address_is_masked():
    bea = make_user("bea@shop.example")
    named, said = ledger.actor_of(bea), "Write to bea@shop.example."
    event = recorded({"for": named, "told": [ledger.Named("bea@shop.example")], "why": said, "note": {"to": str(bea)}})
    masked = f"Write to {MASK}."
    assert event.data == {"for": named, "told": ["bea@shop.example"], "why": masked, "note": {"to": MASK}}
    assert named == f"user:{bea.pk}:bea@shop.example"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("actor", "key"),
    [("system", "system"), ("model", "model"), ("customer:40117", "customer:40117"),
     ("customer:40117 (token shop)", "customer:40117"), ("user:12:a:b (c) (token d)", "user:12"), ("", ""),
     ("odd\nname (x)", "odd\nname")],
)  # fmt: skip
def test_an_actor_is_found_without_name_and_way(actor, key):
    assert recorded({}, actor).actor_key == key


@pytest.mark.django_db
@pytest.mark.parametrize(
    "changed",
    [{"approval_id": OTHER_RUN}, {"execution_id": None}, {"tool": "close_account"}, {"risk": "low"}, {"took_ms": 1},
     {"actor_key": "user:6"}],
)  # fmt: skip
def test_an_event_made_to_be_found_elsewhere_is_found_out(changed):
    event = recorded(ABOUT, "user:5:dana")
    append_only.remove(connection)
    Event.objects.filter(pk=event.pk).update(**changed)
    assert ledger.verify(CHAIN)[1] == Break(CHAIN, 1, "what it is about does not match its text")
