import ast
import json
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.db import connection

from approvals import append_only, ledger
from approvals.digest import canonical
from approvals.models import Checkpoint, Event, LedgerKey
from approvals.proof import anchors, checkpoints, inclusion, keys, signing_key
from approvals.proof.manifest import Manifest
from tests.approvals.proof.exports import EXPORT, PROOF, said, said_elsewhere, said_of_proof, written

pytestmark = pytest.mark.django_db

RUNS = [ledger.run_chain(uuid.UUID(int=number)) for number in range(1, 4)]


def tell(*chains: str) -> None:
    with ledger.transaction():
        for number, chain in enumerate(chains):
            about = {"approval": str(uuid.UUID(int=7)), "tool": "pay", "risk": "high", "took_ms": 5}
            ledger.record(chain, "step.recorded", {"number": number, "text": "ä \x7f \u2028 €", **about}, "user:5:dana")


@pytest.fixture
def past():
    """Two checkpoints over three chains, and two events that none covers."""
    tell(*RUNS, *RUNS)
    checkpoints.make()
    tell(RUNS[0], RUNS[0], RUNS[0])
    checkpoints.make()
    tell(RUNS[1], ledger.CONFIGURATION)
    anchors.write_file()


@pytest.mark.parametrize("verifier", [EXPORT, PROOF], ids=lambda path: path.name)
def test_a_file_that_cannot_be_read_is_not_called_broken(verifier, tmp_path):
    command = [sys.executable, str(verifier), str(tmp_path / "none"), "--key", "aa"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("none cannot be read: No such file or directory\n")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("verifier", [EXPORT, PROOF], ids=lambda path: path.name)
def test_it_needs_nothing_but_python_and_cryptography(verifier):
    tree = ast.parse(verifier.read_text())
    named = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    named |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert {name.partition(".")[0] for name in named} - set(sys.stdlib_module_names) == {"cryptography"}


def test_the_documentation_says_how_long_it_is():
    said = (Path(django_settings.BASE_DIR) / "docs" / "ledger.md").read_text()
    assert f"is one file of {len(EXPORT.read_text().splitlines())} lines" in said


def test_a_whole_ledger_holds_for_an_outsider_who_knows_the_key(past, folder, key, settings):
    file = written(folder / "ledger.jsonl")
    assert said_elsewhere(file, key.key_id) == (0, "OK: 12 events, 2 checkpoints\n")
    assert said(file, key.key_id, "--anchor", str(settings.LEDGER.anchor_file))[0] == 0


def test_another_key_is_not_trusted_whatever_the_file_says(past, folder):
    code, told = said(written(folder / "ledger.jsonl"), "0" * 64)
    assert (code, "a key you do not trust" in told) == (1, True)


def test_an_empty_ledger_has_an_export_too(folder, key):
    # Its one event is the introduction of the key that signs it.
    assert said(written(folder / "ledger.jsonl"), key.key_id) == (0, "OK: 1 events, 0 checkpoints\n")


def test_an_export_that_was_changed_or_cut_does_not_hold(past, folder, key):
    file = written(folder / "ledger.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    for changed in (lines[:-1], [*lines[:-2], lines[-1]], [*lines, lines[-2]], [lines[0], *lines[2:]]):
        file.write_bytes(b"".join(changed))
        assert said(file, key.key_id)[0] == 1
    for name, value in (("took_ms", 5), ("number", 0)):
        written_otherwise = b"".join(lines).decode().replace(rf"\"{name}\":{value}", rf"\"{name}\":{value + 1}", 1)
        assert written_otherwise != b"".join(lines).decode()
        file.write_text(written_otherwise)
        assert said(file, key.key_id)[0] == 1


def test_the_first_broken_event_is_named_with_its_neighbours(past, folder, key):
    append_only.remove(connection)
    Event.objects.filter(chain=RUNS[0], seq=3).update(actor="user:1:mallory")
    hashes = list(Event.objects.filter(chain=RUNS[0]).order_by("seq").values_list("hash", flat=True))
    code, told = said_elsewhere(written(folder / "ledger.jsonl"), key.key_id)
    first, before, found, after = told.splitlines()
    assert (code, first) == (1, f"BROKEN: {RUNS[0]}, event 3: its columns do not match its text: actor")
    assert [line.split()[-1] for line in (before, found, after)] == hashes[1:4]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("actor_key", "user:1"),
        ("tool", "buy"),
        ("risk", "low"),
        ("took_ms", 6),
        ("run_id", uuid.UUID(int=9)),
        ("approval_id", uuid.UUID(int=9)),
        ("execution_id", uuid.UUID(int=9)),
    ],
)
def test_an_outsider_sees_of_which_columns_an_event_is_not_found_by_its_text(past, folder, key, column, value):
    append_only.remove(connection)
    Event.objects.filter(chain=RUNS[0], seq=3).update(**{column: value})
    file = written(folder / "ledger.jsonl")
    code, told = said_elsewhere(file, key.key_id)
    wrong = f"its columns do not match its text: {column.removesuffix('_id')}"
    assert (code, told.splitlines()[0]) == (1, f"BROKEN: {RUNS[0]}, event 3: {wrong}")


def test_what_is_no_key_no_tool_and_no_number_is_found_by_nothing_for_an_outsider_too(folder, key):
    odd = {"approval": "z" * 36, "execution": 7, "tool": ["x"], "risk": "r" * 11, "took_ms": True}
    with ledger.transaction():
        for number, actor in enumerate(("model", "customer:Ana (link 1)", "user:5:da na (token CI)", "system (x\ny)")):
            ledger.record(RUNS[0], "step.recorded", {**odd, "tool": "t" * 300 if number else odd["tool"]}, actor)
    assert said(written(folder / "ledger.jsonl"), key.key_id)[0] == 0


def test_a_part_whose_columns_are_not_those_of_its_text_does_not_hold(past, folder, key):
    event = Event.objects.filter(chain=RUNS[0]).earliest("seq")
    for beside, code in (({"seq": 1, "chain": RUNS[0]}, 0), ({"seq": 2}, 1), ({"tool": "buy"}, 1)):
        manifest = Manifest({}, "user:5:dana")
        row = {"kind": "event", "body": event.body, "hash": event.hash, **beside}
        text = manifest.feed(json.dumps(row).encode() + b"\n")
        (folder / "part.jsonl").write_bytes(text + manifest.finish().encode())
        assert said(folder / "part.jsonl", key.key_id)[0] == code


def test_checkpoints_that_are_gone_are_missed_by_whoever_noted_them(past, folder, key, settings):
    append_only.remove(connection)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM approvals_checkpointleaf WHERE checkpoint_id = 2")
        cursor.execute("DELETE FROM approvals_checkpoint WHERE number = 2")
    file = written(folder / "ledger.jsonl")
    assert said(file, key.key_id)[0] == 0  # nothing inside gives it away
    code, told = said(file, key.key_id, "--anchor", str(settings.LEDGER.anchor_file))
    assert (code, told) == (1, "BROKEN: checkpoint 2 was noted outside but is not here\n")


def test_two_checkpoints_of_one_number_that_were_noted_outside_are_not_taken_for_one(past, folder, key, settings):
    file, anchor = written(folder / "ledger.jsonl"), settings.LEDGER.anchor_file
    first, second = (json.loads(line) for line in anchor.read_text().splitlines())
    other = {**second, "statement": second["statement"].replace('"leaves"', '"leave"')}
    for lines in ([first, other, second], [first, second, other], [other, first, second]):
        anchor.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        code, told = said(file, key.key_id, "--anchor", str(anchor))
        assert (code, told) == (1, "BROKEN: two different checkpoints 2 were noted outside\n")
    # A checkpoint noted twice is the same both times.
    anchor.write_text("".join(f"{json.dumps(line)}\n" for line in (first, first, second, second)))
    assert said(file, key.key_id, "--anchor", str(anchor))[0] == 0


def test_a_part_of_the_ledger_holds_by_its_manifest(past, folder, key):
    manifest = Manifest({"tool": "pay"}, "user:5:dana")
    file, text = folder / "part.jsonl", b""
    for event in Event.objects.filter(tool="pay", seq=1).order_by("at"):
        text += manifest.feed(json.dumps({"kind": "event", "body": event.body, "hash": event.hash}).encode() + b"\n")
        manifest.note(event.hash)
    file.write_bytes(text + manifest.finish().encode())
    assert said(file, key.key_id) == (0, 'OK: 4 events of a filtered export {"tool": "pay"}\n')
    file.write_bytes(file.read_bytes().replace(b"pay", b"buy"))
    assert said(file, key.key_id)[0] == 1


def test_a_table_holds_by_the_manifest_beside_it(folder, key):
    manifest = Manifest({}, "user:5:dana")
    (folder / "part.csv").write_bytes(manifest.feed("at,what\n1,ä\n".encode()))
    (folder / "part.json").write_text(manifest.finish())
    more = ("--manifest", str(folder / "part.json"))
    assert said(folder / "part.csv", key.key_id, *more)[0] == 0
    (folder / "part.csv").write_bytes(b"at,what\n1,b\n")
    assert said(folder / "part.csv", key.key_id, *more)[0] == 1


def test_a_part_that_nobody_has_signed_is_said_to_be_one(past, folder, key, settings):
    settings.LEDGER = replace(settings.LEDGER, makes_key=False, signing_key_file=folder / "none")
    (folder / "part.jsonl").write_text(Manifest({}, "user:5:dana").finish())
    assert said(folder / "part.jsonl", key.key_id) == (1, "BROKEN: it is not signed\n")


def test_an_event_is_proven_without_showing_another(past, folder, key):
    for event in Event.objects.exclude(chain=ledger.CONFIGURATION):
        if (event.chain, event.seq) == (RUNS[1], 3):
            continue
        proof = inclusion.inclusion(event.pk)
        (folder / "proof.json").write_text(canonical(proof))
        code, told = said_of_proof(folder / "proof.json", key.key_id)
        assert (code, f"{event.chain}, event {event.seq} (" in told) == (0, True)
        shown = [other.body for other in Event.objects.all() if canonical(other.body)[1:-1] in canonical(proof)]
        assert shown == [event.body]
    assert said_elsewhere(folder / "proof.json", key.key_id, by=PROOF)[0] == 0


@pytest.mark.parametrize("wrong", ["body", "path", "index", "statement", "signature"])
def test_a_forged_proof_does_not_hold(past, folder, key, wrong):
    event = Event.objects.get(chain=RUNS[0], seq=4)
    proof = inclusion.inclusion(event.pk)
    if wrong == "body":
        proof["event"]["body"] = proof["event"]["body"].replace("dana", "mallory")
    elif wrong == "path":
        proof["part"]["path"].reverse()
        proof["part"]["path"].append("0" * 64)
    elif wrong == "index":
        proof["part"]["first"] += 1
    elif wrong == "statement":
        proof["checkpoint"]["statement"] = proof["checkpoint"]["statement"].replace('"leaves"', '"leave"')
    else:
        proof["checkpoint"]["signature"] = signing_key.sign("something else").value_b64
    (folder / "proof.json").write_text(canonical(proof))
    code, told = said_of_proof(folder / "proof.json", key.key_id)
    assert (code, told.startswith("BROKEN")) == (1, True)


def test_an_event_that_no_checkpoint_covers_has_no_proof_yet(past):
    with pytest.raises(inclusion.NotCovered):
        inclusion.inclusion(Event.objects.get(chain=RUNS[1], seq=3).pk)


def test_whoever_trusts_the_old_key_is_led_to_the_one_that_it_says_follows(past, folder, key, settings):
    new = keys.rotate(folder / "new.key")
    settings.LEDGER = replace(settings.LEDGER, signing_key_file=folder / "new.key")
    tell(RUNS[2])
    checkpoints.make()
    assert Checkpoint.objects.order_by("-number").first().key_id == new.key_id != key.key_id
    file = written(folder / "ledger.jsonl")
    assert said(file, key.key_id)[0] == 0
    # A verifier that knows only the new key trusts nothing earlier, unless told to.
    assert said(file, new.key_id)[0] == 1
    assert said(file, new.key_id, "--key", key.key_id)[0] == 0


def test_no_part_is_taken_for_a_whole_ledger_after_another_key_has_followed(past, folder, key, settings):
    keys.rotate(folder / "new.key")
    settings.LEDGER = replace(settings.LEDGER, signing_key_file=folder / "new.key")
    event = Event.objects.filter(chain=RUNS[0]).earliest("seq")
    for beside, code in (({}, 0), ({"tool": "buy"}, 1)):
        manifest = Manifest({"tool": "pay"}, "user:5:dana", succession=keys.succession())
        row = {"kind": "event", "body": event.body, "hash": event.hash, **beside}
        text = manifest.feed(json.dumps(row).encode() + b"\n")
        manifest.note(event.hash)
        (folder / "part.jsonl").write_bytes(text + manifest.finish().encode())
        found, told = said(folder / "part.jsonl", key.key_id)
        assert (found, "1 events of a filtered export" in told) == (code, code == 0)


def test_only_keys_that_follow_each_other_lead_to_the_one_in_use(folder, key, settings):
    assert keys.succession() == []
    keys.introduce()
    assert keys.succession() == []
    for name in ("second.key", "third.key"):
        keys.rotate(folder / name)
        settings.LEDGER = replace(settings.LEDGER, signing_key_file=folder / name)
    third = signing_key.public_key()
    assert [row["public_key"] for row in keys.succession()][0::2] == [key.value_b64, third.value_b64]
    assert len(keys.succession()) == 3
    # A key introduced by itself follows none, whatever its row says.
    settings.LEDGER = replace(settings.LEDGER, signing_key_file=folder / "mallory.key")
    row = keys.introduce()
    statement = row.statement.replace('"previous":""', f'"previous":"{key.key_id}"')
    append_only.remove(connection)
    LedgerKey.objects.filter(pk=row.pk).update(statement=statement, endorsement=row.signature)
    assert keys.succession() == []


def test_a_key_that_only_says_of_itself_that_it_follows_is_not_trusted_for_it(past, folder, key, settings):
    settings.LEDGER = replace(settings.LEDGER, signing_key_file=folder / "mallory.key")
    tell(RUNS[2])
    checkpoints.make()
    file = written(folder / "ledger.jsonl")
    assert said(file, key.key_id)[0] == 1
    assert said(file, signing_key.public_key().key_id)[0] == 1
    assert said(file, signing_key.public_key().key_id, "--key", key.key_id)[0] == 0


@pytest.mark.parametrize(
    "text", ["{}", "[]", "null", '{"kind":"ledger", "none": 1}', '{"kind":"inclusion"}', "[" * 9 + "]" * 9]
)
def test_what_is_no_export_is_said_to_be_none(folder, key, text):
    (folder / "file").write_text(text)
    for look in (said, said_of_proof):
        code, told = look(folder / "file", key.key_id)
        assert (code, told.startswith("BROKEN")) == (1, True)


@pytest.mark.parametrize("text", ["", "not json", '{"kind": "ledger"', "seq,chain\n1,run\n", "\ufffe", "{}\n\n\0"])
def test_what_is_no_json_cannot_be_read_which_says_nothing_of_the_ledger(folder, key, text):
    (folder / "file").write_text(text)
    for look in (said, said_of_proof):
        code, told = look(folder / "file", key.key_id)
        assert (code, "file cannot be read: it is not JSON (an incomplete download?)" in told) == (2, True)
        assert "BROKEN" not in told


def test_a_list_of_what_was_noted_that_is_no_json_cannot_be_read(past, folder, key):
    file = written(folder / "ledger.jsonl")
    (folder / "noted").write_text("<html>")
    code, told = said(file, key.key_id, "--anchor", str(folder / "noted"))
    assert (code, "noted cannot be read: it is not JSON" in told) == (2, True)


def test_an_export_that_was_cut_off_is_never_said_to_hold(past, folder, key):
    whole = written(folder / "ledger.jsonl").read_bytes()
    *lines, manifest = whole.splitlines(keepends=True)
    for kept in range(len(lines) + 1):
        (folder / "cut").write_bytes(b"".join(lines[:kept]))
        assert said(folder / "cut", key.key_id)[0] == (1 if kept else 2), kept
        (folder / "cut").write_bytes(b"".join(lines[:kept]) + manifest[:-2])
        assert said(folder / "cut", key.key_id)[0] == 2
        # Somebody else has completed the file: it is valid JSON, and does not verify.
        (folder / "cut").write_bytes(b"".join(lines[:kept]) + manifest)
        assert said(folder / "cut", key.key_id)[0] == (0 if kept == len(lines) else 1)
    torn = lines[3][:40] + b"\n"
    (folder / "cut").write_bytes(b"".join([*lines[:3], torn, *lines[4:], manifest]))
    assert said(folder / "cut", key.key_id)[0] == 1
