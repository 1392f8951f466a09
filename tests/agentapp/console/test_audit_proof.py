"""Pages that prove the record to others: checks of the chain, checkpoints, proofs and receipts to keep."""

import html
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.utils import timezone

from agentapp import tasks
from agentapp.audit import standing
from agentapp.models import Tool
from approvals import append_only, ledger
from approvals.digest import sha256
from approvals.models import Anchor, Approval, ChainHead, Event, Verification
from approvals.proof import anchors, checkpoints, keys, signing_key, verifying
from tests.approvals.proof.exports import said, said_of_proof
from tests.conftest import Clerk, call, calls, says

PAY = calls(call("p", "pay", account="ana", amount=5), text="I pay.")


@pytest.fixture
def paid(clerk: Clerk, dana: User) -> Approval:
    run = clerk.run(PAY, says("Done."))
    approval = clerk.open(run)[0]
    clerk.decide(approval, dana)
    clerk.drive(run)
    return Approval.objects.get(pk=approval.pk)


@pytest.fixture
def manager(client: Client, mia: User) -> Client:
    client.force_login(mia)
    return client


def checked() -> Verification:
    verification = verifying.latest()
    assert verification is not None
    while verifying.go_on(verification.pk):
        pass
    return Verification.objects.get(pk=verification.pk)


def shown(client: Client, path: str = "/audit/proof/") -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return html.unescape(answer.content.decode())


def verified(tmp_path: Path, content: bytes, program: str = "verify_proof") -> subprocess.CompletedProcess[str]:
    """What the stand-alone verifier says of a file, in a process that has nothing of the product."""
    file = tmp_path / "taken.json"
    file.write_bytes(content)
    path = Path(verifying.__file__).with_name(f"{program}.py")
    command = [sys.executable, "-I", str(path), str(file), "--key", signing_key.public_key().key_id]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)


def test_a_check_is_asked_for_and_its_result_stands_above_the_trail(manager, paid, mia) -> None:
    assert "Not checked yet" in shown(manager, "/audit/")
    answer = manager.post("/audit/proof/verify/")
    assert (answer.status_code, answer["Location"]) == (302, "/audit/")
    assert "Checking the chain" in shown(manager, "/audit/")
    row = checked()
    assert (row.holds, row.started_by) == (True, mia)
    page = shown(manager, "/audit/")
    assert "Chain intact" in page
    assert f"{row.events} events" in page


def test_a_second_press_joins_the_check_that_is_under_way(manager, paid) -> None:
    manager.post("/audit/proof/verify/")
    manager.post("/audit/proof/verify/")
    assert Verification.objects.count() == 1


def test_a_break_is_named_with_the_events_beside_it(manager, paid) -> None:
    found = Event.objects.get(type="approval.approved")
    append_only.remove(connection)
    Event.objects.filter(pk=found.pk).update(actor="user:1:nobody")
    append_only.install(connection)
    manager.post("/audit/proof/verify/")
    checked()
    page = shown(manager, "/audit/")
    assert "The chain is broken" in page
    assert f"event {found.seq}: its columns do not match its text" in page
    assert f'href="/audit/events/{found.pk}/"' in page
    proof = shown(manager)
    assert f"Before it: #{found.seq - 1}" in proof
    assert f"After it: #{found.seq + 1}" in proof
    assert "The chain is broken; the file says so." in page


def test_checking_from_a_narrowed_trail_leads_back_to_it(manager, paid) -> None:
    trail = "/audit/?q=did%3Aapproved+%22%3Cb%3E%22"
    html = manager.get(trail).content.decode()
    form = html.partition('action="/audit/proof/verify/"')[2].partition("</form>")[0]
    assert '<input type="hidden" name="q" value="did:approved &quot;&lt;b&gt;&quot;">' in form

    assert manager.post("/audit/proof/verify/", {"q": 'did:approved "<b>"'})["Location"] == trail
    assert 'hx-get="/audit/proof/chain/?q=did%3Aapproved' in shown(manager, trail)
    checked()
    assert 'name="q" value="did:approved"' in shown(manager, "/audit/proof/chain/?q=did%3Aapproved")


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize("day", ["9999-12-31", "9001-01-01", "1999-12-31", "0001-01-01"])
@pytest.mark.parametrize("field", ["since", "until"])
def test_a_day_at_an_end_of_the_calendar_is_refused_at_its_field(
    manager, settings, zone: str, day: str, field: str
) -> None:
    settings.TIME_ZONE = zone
    answer = manager.post("/audit/proof/verify/", {field: day})
    assert answer.status_code == 422
    assert list(answer.context["form"].errors) == [field]
    assert "Give a day from 2000 to 9000." in html.unescape(answer.content.decode())
    assert not Verification.objects.exists()


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_the_first_and_the_last_day_that_can_be_named_are_checked(manager, paid, settings, zone: str) -> None:
    settings.TIME_ZONE = zone
    answer = manager.post("/audit/proof/verify/", {"since": "2000-01-01", "until": "9000-12-31"})
    assert answer.status_code == 302
    row = Verification.objects.get()
    while verifying.go_on(row.pk):
        pass
    assert Verification.objects.get().holds
    assert manager.get("/audit/proof/").status_code == 200


def test_what_happened_within_some_days_is_checked_alone(manager, paid) -> None:
    answer = manager.post("/audit/proof/verify/", {"since": "2026-01-01", "until": "2026-01-02"})
    assert answer["Location"] == "/audit/proof/"
    row = Verification.objects.get()
    assert (str(row.since.date()), str(row.until.date())) == ("2026-01-01", "2026-01-03")
    assert standing.now().state == standing.UNCHECKED


@pytest.mark.parametrize("given", [{"since": "soon"}, {"since": "2026-02-01", "until": "2026-01-01"}])
def test_days_that_are_none_are_said_and_begin_nothing(manager, paid, given) -> None:
    answer = manager.post("/audit/proof/verify/", given)
    assert answer.status_code == 422
    assert f'value="{given["since"]}"' in answer.content.decode()
    assert not Verification.objects.exists()


def test_the_task_behind_it_checks_in_slices_until_it_is_done(manager, paid) -> None:
    manager.post("/audit/proof/verify/")
    row = Verification.objects.get()
    tasks.verify_ledger(str(row.pk))
    row.refresh_from_db()
    assert row.holds is True


def test_the_proof_of_an_event_holds_elsewhere_and_tells_of_no_other(manager, paid, tmp_path) -> None:
    event = Event.objects.get(type="approval.approved")
    path = f"/audit/events/{event.pk}/proof.json"
    waiting = manager.get(path)
    assert waiting.status_code == 409
    assert b"No checkpoint covers this event yet" in waiting.content
    assert checkpoints.make_due()
    answer = manager.get(path)
    assert answer["Content-Disposition"] == f'attachment; filename="event-{event.pk}-proof.json"'
    others = Event.objects.exclude(pk=event.pk).values_list("body", flat=True)
    said: dict[str, Any] = json.loads(answer.content)
    assert said["event"]["body"] == event.body
    assert not [body for body in others if body in json.dumps(said)]
    found = verified(tmp_path, answer.content)
    assert found.returncode == 0, found.stdout + found.stderr
    forged = answer.content.replace(b"approve", b"rejects")
    assert verified(tmp_path, forged).returncode == 1


def test_the_receipt_of_a_decision_holds_elsewhere(manager, paid, tmp_path) -> None:
    answer = manager.get(f"/audit/approvals/{paid.pk}/receipt.json")
    said = json.loads(answer.content)
    assert (said["approval"], [one["name"] for one in said["deciders"]]) == (str(paid.pk), ["Dana Whitfield"])
    found = verified(tmp_path, answer.content)
    assert found.returncode == 0, found.stdout + found.stderr
    assert verified(tmp_path, answer.content.replace(b"Dana Whitfield", b"Marco Reyes")).returncode == 1


@pytest.fixture
def paid_by_mail(clerk: Clerk, dana: User) -> Approval:
    """Approved by a person whose username is a mail address, with a marked value that occurs in every such text."""
    User.objects.filter(pk=dana.pk).update(username="dana@example.com", first_name="", last_name="")
    dana.refresh_from_db()
    Tool.objects.filter(name="pay").update(pii_fields=["memo"])
    run = clerk.run(calls(call("p", "pay", account="ana", amount=5, memo="approve"), text="I pay."), says("Done."))
    [approval] = clerk.open(run)
    clerk.decide(approval, dana)
    clerk.drive(run)
    return Approval.objects.get(pk=approval.pk)


def test_what_was_hashed_or_signed_holds_for_whoever_may_not_see_personal_data(manager, paid_by_mail, tmp_path) -> None:
    event = Event.objects.get(type="approval.approved")
    assert checkpoints.make_due()
    for path in (f"events/{event.pk}/proof.json", f"approvals/{paid_by_mail.pk}/receipt.json"):
        answer = manager.get(f"/audit/{path}")
        assert b"dana@example.com" in answer.content
        found = verified(tmp_path, answer.content)
        assert found.returncode == 0, found.stdout + found.stderr
    said = manager.get(f"/audit/events/{event.pk}.json").json()
    assert (said["body"], said["hash"]) == (event.body, sha256(said["body"]))
    assert "dana@example.com" not in shown(manager, f"/audit/events/{event.pk}/")


def test_a_secret_in_the_ledger_is_masked_in_its_text_all_the_same(manager) -> None:
    with ledger.transaction():
        ledger.record(ledger.CONFIGURATION, "channel.changed", {"url": "https://me:hunter2@chat.example"})
    event = Event.objects.get(type="channel.changed")
    assert "hunter2" in event.body
    assert b"hunter2" not in manager.get(f"/audit/events/{event.pk}.json").content


def test_an_export_of_the_trail_holds_elsewhere_and_a_changed_byte_does_not(manager, paid, tmp_path) -> None:
    content = manager.post("/audit/export/jsonl/", {"q": "did:approved,ran"}).getvalue()
    found = verified(tmp_path, content, "verify_export")
    assert found.returncode == 0, found.stdout + found.stderr
    at = content.index(b'"seq":')
    assert verified(tmp_path, content[:at] + b'"seq": ' + content[at + 6 :], "verify_export").returncode == 1


def test_exports_and_receipts_hold_for_whoever_trusts_the_key_before_the_one_in_use(
    manager, paid, tmp_path, settings
) -> None:
    old = signing_key.public_key().key_id
    keys.rotate(tmp_path / "new.key")
    settings.LEDGER = replace(settings.LEDGER, signing_key="", signing_key_file=tmp_path / "new.key")
    (tmp_path / "part").write_bytes(manager.post("/audit/export/jsonl/", {"q": "did:approved"}).getvalue())
    assert said(tmp_path / "part", old)[0] == 0
    (tmp_path / "receipt").write_bytes(manager.get(f"/audit/approvals/{paid.pk}/receipt.json").content)
    assert said_of_proof(tmp_path / "receipt", old)[0] == 0


@pytest.mark.parametrize("name", ["verify_export.py", "verify_proof.py"])
def test_the_verifiers_are_handed_out_as_they_are(manager, name) -> None:
    assert f"/audit/proof/{name}" in shown(manager, "/audit/proof/")
    answer = manager.get(f"/audit/proof/{name}")
    assert answer.content.decode() == Path(verifying.__file__).with_name(name).read_text()
    assert answer["Content-Disposition"] == f'attachment; filename="{name}"'


def test_only_who_may_read_the_ledger_sees_any_of_it(client, paid, dana) -> None:
    client.force_login(dana)
    event = Event.objects.get(type="approval.approved")
    paths = ["", "chain/", "verify_export.py", "verify_proof.py"]
    pages = [f"/audit/proof/{path}" for path in paths]
    pages += [f"/audit/events/{event.pk}/proof.json"]
    assert {client.get(page).status_code for page in pages} == {403}
    assert client.post("/audit/proof/verify/").status_code == 403
    # A person who may see a request may have what people said of it.
    assert client.get(f"/audit/approvals/{paid.pk}/receipt.json").status_code == 200
    assert not Verification.objects.exists()


def test_an_event_of_a_run_one_may_not_see_has_no_proof_for_them(client, paid) -> None:
    reader = User.objects.create_user("rita", password="x")
    reader.user_permissions.add(Permission.objects.get(codename="view_event"))
    client.force_login(reader)
    event = Event.objects.get(type="approval.approved")
    assert checkpoints.make_due()
    assert client.get(f"/audit/events/{event.pk}/proof.json").status_code == 404
    assert client.get(f"/audit/approvals/{paid.pk}/receipt.json").status_code == 404


def test_the_page_takes_as_many_queries_however_much_there_is(manager, paid, django_assert_max_num_queries) -> None:
    for _ in range(3):
        manager.post("/audit/proof/verify/")
        checked()
    checkpoints.make_due()
    with django_assert_max_num_queries(12):
        page = shown(manager)
    assert page.count("Everything holds") == 3
    assert signing_key.public_key().key_id in page
    assert ledger.verify()[1] is None


def test_of_what_was_erased_no_receipt_is_signed_and_the_page_says_why(manager, paid) -> None:
    Approval.objects.filter(pk=paid.pk).update(erased_at=timezone.now())
    answer = manager.get(f"/audit/approvals/{paid.pk}/receipt.json")
    assert answer.status_code == 409
    assert b"has been erased" in answer.content


def test_a_break_in_a_run_one_may_not_see_is_said_without_naming_it(client, manager, paid) -> None:
    event = Event.objects.get(type="approval.approved")
    append_only.remove(connection)
    Event.objects.filter(pk=event.pk).update(actor="user:1:nobody")
    append_only.install(connection)
    manager.post("/audit/proof/verify/")
    checked()
    reader = User.objects.create_user("rita", password="x")
    reader.user_permissions.add(Permission.objects.get(codename="view_event"))
    client.force_login(reader)
    for path in ("/audit/", "/audit/proof/", "/audit/proof/chain/"):
        page = shown(client, path)
        assert "broken in a run that you may not see" in page
        assert str(paid.run_id) not in page
        assert event.hash not in page
        assert str(event.pk) not in page


def test_a_run_whose_chain_was_taken_away_whole_is_missed(manager, clerk) -> None:
    run = clerk.run(says("Done."))
    manager.post("/audit/proof/verify/")
    assert checked().holds is True
    append_only.remove(connection)
    Event.objects.filter(run_id=run.pk).delete()
    ChainHead.objects.filter(pk=ledger.run_chain(run.pk)).delete()
    append_only.install(connection)
    manager.post("/audit/proof/verify/")
    row = checked()
    assert (row.holds, row.broken and row.broken["chain"]) == (False, ledger.run_chain(run.pk))
    assert "its chain is missing" in shown(manager)


def test_the_page_says_whether_a_place_outside_knows_the_last_checkpoint(manager, paid, settings, tmp_path) -> None:
    settings.LEDGER = replace(settings.LEDGER, anchor_file=tmp_path / "noted.jsonl")
    assert checkpoints.make_due()
    Anchor.objects.all().delete()
    assert "The last one is not noted outside the database yet." in shown(manager)
    assert anchors.write_file()
    assert "The last one is also noted outside the database." in shown(manager)


def test_where_no_key_is_known_nothing_is_called_anchored(manager, paid, settings, tmp_path) -> None:
    assert checkpoints.make_due()
    settings.LEDGER = replace(settings.LEDGER, signing_key="", signing_key_file=tmp_path / "none", makes_key=False)
    manager.post("/audit/proof/verify/")
    checked()
    page = shown(manager, "/audit/")
    assert "Chain intact" in page
    assert "not anchored" in page
    assert ", anchored" not in page
