import base64
import csv
import dataclasses
import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from django.db import connection
from django.db.models import QuerySet
from hypothesis import given, settings
from hypothesis import strategies as st

from agentapp.audit import exporting
from agentapp.audit.cells import inert
from agentapp.audit.exporting import COLUMNS, Export, json_lines, zipped_csv
from approvals import ledger
from approvals.digest import canonical, load, sha256
from approvals.models import Event
from approvals.proof import keys, signing_key, verify_export, verify_proof
from tests.approvals.proof.exports import said, said_elsewhere

WIDE = "\uff1d1"
ODD = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", WIDE, '"quoted", and more', "two\nlines", "plain", "€ 😀"]

pytestmark = pytest.mark.django_db


def happened(*texts: str) -> QuerySet[Event]:
    with ledger.transaction():
        for text in texts:
            data = {"tool": text, "risk": "high", "took_ms": 1200, "message": text}
            ledger.record("shop", "approval.approved", data, f"user:1:{text}")
    return Event.objects.filter(chain="shop")


def asked(found: QuerySet[Event]) -> Export:
    return Export(found, {"q": "risk:high"}, "user:5:ada")


def lines(export: Export) -> list[dict[str, Any]]:
    return [json.loads(line) for line in b"".join(json_lines(export)).splitlines()]


def unzipped(pieces: Iterator[bytes]) -> tuple[bytes, dict[str, Any]]:
    archive = zipfile.ZipFile(io.BytesIO(b"".join(pieces)))
    assert archive.testzip() is None
    assert archive.namelist() == ["events.csv", "manifest.json"]
    return archive.read("events.csv"), json.loads(archive.read("manifest.json"))


def holds(manifest: dict[str, Any]) -> bool:
    said = canonical({name: value for name, value in manifest.items() if name != "signature"})
    return signing_key.holds(said, manifest["signature"], manifest["public_key"])


def test_json_lines_are_every_event_as_it_was_hashed_and_a_manifest():
    found = happened(*ODD)
    *events, manifest = lines(asked(found))
    assert [event["body"] for event in events] == list(found.order_by("at", "id").values_list("body", flat=True))
    assert all(sha256(event["body"]) == event["hash"] for event in events)
    assert [load(event["body"])["data"]["message"] for event in events] == ODD
    assert (manifest["kind"], manifest["count"], manifest["by"]) == ("manifest", len(ODD), "user:5:ada")
    assert (manifest["filter"], manifest["first_hash"]) == ({"q": "risk:high"}, events[0]["hash"])
    assert manifest["last_hash"] == events[-1]["hash"]
    assert holds(manifest)


def test_the_manifest_is_over_the_bytes_before_it():
    content = b"".join(json_lines(asked(happened("one", "two"))))
    *_, last = content.splitlines(keepends=True)
    assert json.loads(last)["sha256"] == sha256(content[: -len(last)].decode())


def test_a_spreadsheet_is_complete_and_beside_it_is_its_manifest():
    found = happened(*ODD)
    content, manifest = unzipped(zipped_csv(asked(found)))
    head, *rows = csv.reader(io.StringIO(content.decode(), newline=""))
    assert tuple(head) == COLUMNS
    assert [json.loads(row[head.index("data")])["message"] for row in rows] == ODD
    assert [row[head.index("hash")] for row in rows] == list(found.order_by("at", "id").values_list("hash", flat=True))
    assert {row[head.index("took_ms")] for row in rows} == {"1200"}
    assert (manifest["sha256"], manifest["count"]) == (sha256(content.decode()), len(ODD))
    assert holds(manifest)


def test_no_cell_is_a_formula():
    content, _ = unzipped(zipped_csv(asked(happened(*ODD))))
    cells = [cell for row in csv.reader(io.StringIO(content.decode(), newline="")) for cell in row]
    assert not [cell for cell in cells if cell.strip().startswith(("=", "+", "-", "@", WIDE[0]))]
    assert "'=1+1" in cells


def test_what_was_found_holds_for_whoever_trusts_the_key_of_before(tmp_path, settings):
    old = signing_key.public_key().key_id
    keys.rotate(tmp_path / "new.key")
    settings.LEDGER = dataclasses.replace(settings.LEDGER, signing_key="", signing_key_file=tmp_path / "new.key")
    export = dataclasses.replace(asked(happened("one", "two")), succession=keys.succession())
    (tmp_path / "part.jsonl").write_bytes(b"".join(json_lines(export)))
    assert said(tmp_path / "part.jsonl", old) == (0, 'OK: 2 events of a filtered export {"q": "risk:high"}\n')
    table, manifest = unzipped(zipped_csv(export))
    (tmp_path / "events.csv").write_bytes(table)
    (tmp_path / "manifest.json").write_text(canonical(manifest))
    assert said(tmp_path / "events.csv", old, "--manifest", str(tmp_path / "manifest.json"))[0] == 0


def test_a_changed_byte_is_found():
    content, manifest = unzipped(zipped_csv(asked(happened("one", "two"))))
    assert hashlib.sha256(content).hexdigest() == manifest["sha256"]
    assert holds(manifest)
    for at in range(0, len(content), 37):
        changed = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        assert hashlib.sha256(changed).hexdigest() != manifest["sha256"]
    assert not holds({**manifest, "count": manifest["count"] + 1})
    assert not holds({**manifest, "sha256": "0" * 64})


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4, 5, 7])
def test_nothing_is_lost_or_doubled_between_stretches(monkeypatch, number):
    monkeypatch.setattr(exporting, "AT_ONCE", 2)
    found = happened(*(str(each) for each in range(number)))
    *events, manifest = lines(asked(found))
    assert [load(event["body"])["data"]["message"] for event in events] == [str(each) for each in range(number)]
    assert manifest["count"] == number
    content, beside = unzipped(zipped_csv(asked(found)))
    assert (content.count(b"\r\n"), beside["count"]) == (number + 1, number)


def test_each_stretch_is_one_query(monkeypatch, django_assert_num_queries):
    monkeypatch.setattr(exporting, "AT_ONCE", 2)
    found = happened(*"abcd")
    with django_assert_num_queries(3):
        list(json_lines(asked(found)))


@pytest.mark.django_db(transaction=True)
def test_no_connection_waits_for_whoever_takes_a_file_slowly(monkeypatch):
    monkeypatch.setattr(exporting, "AT_ONCE", 2)
    pieces = json_lines(asked(happened(*"abcd")))
    for _ in range(2):
        next(pieces)
        assert connection.connection is None
    assert len(list(pieces)) >= 1


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=20))
def test_whatever_stands_in_a_cell_is_read_back_and_acts_as_nothing(text):
    written = exporting._csv([[inert(text)]]).decode()
    [[cell]] = csv.reader(io.StringIO(written, newline="")) if written != "\r\n" else [[""]]
    assert cell in (text, f"'{text}")
    assert not cell.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r"))


def test_an_outsider_holds_a_spreadsheet_against_its_manifest_and_no_flipped_bit_of_either_passes(tmp_path):
    """A real export, unpacked, checked by the program that uses nothing of ours."""
    content, _ = unzipped(zipped_csv(asked(happened(*ODD))))
    archive = zipfile.ZipFile(io.BytesIO(b"".join(zipped_csv(asked(Event.objects.filter(chain="shop"))))))
    manifest, key = archive.read("manifest.json"), signing_key.public_key().key_id
    table, beside = tmp_path / "events.csv", tmp_path / "manifest.json"

    def refused(one: bytes, other: bytes) -> bool:
        table.write_bytes(one)
        beside.write_bytes(other)
        return said(table, key, "--manifest", str(beside))[0] == (1 if is_json(other) else 2)

    assert archive.read("events.csv") == content
    table.write_bytes(content)
    beside.write_bytes(manifest)
    assert said_elsewhere(table, key, "--manifest", str(beside))[0] == 0
    assert said(table, "0" * 64, "--manifest", str(beside))[0] == 1
    chance = Random(1)
    for at in chance.sample(range(len(content)), 150):
        assert refused(flipped(content, at, chance.randrange(8)), manifest), at
    for at in range(len(manifest)):
        assert refused(content, flipped(manifest, at, chance.randrange(8))), manifest[:at]
    assert refused(content + b"\r\n", manifest)
    assert refused(content[:-2], manifest)


def flipped(content: bytes, at: int, bit: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]


def is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except ValueError:
        return False
    return True


def test_a_signature_is_spelled_in_one_way(tmp_path):
    """Base64 has spare bits at its end: if they change, it decodes to the same."""
    *_, last = lines(asked(happened("one")))
    spare = last["signature"][:-3] + chr(ord(last["signature"][-3]) + 1) + "=="
    text = canonical({name: value for name, value in last.items() if name != "signature"})
    assert base64.b64decode(spare) == base64.b64decode(last["signature"])
    assert signing_key.holds(text, last["signature"], last["public_key"])
    assert not signing_key.holds(text, spare, last["public_key"])
    for program in (verify_export, verify_proof):
        assert program.signed(text, last["signature"], last["public_key"])
        assert not program.signed(text, spare, last["public_key"])


def test_without_a_key_the_manifest_says_that_it_is_not_signed(settings):
    settings.LEDGER = dataclasses.replace(
        settings.LEDGER, signing_key="", makes_key=False, signing_key_file=settings.LEDGER.anchor_file / "none"
    )
    *events, manifest = lines(asked(happened("one")))
    assert (len(events), manifest["count"]) == (1, 1)
    assert "signature" not in manifest
    assert manifest["unsigned"].startswith("Neither LEDGER_SIGNING_KEY nor the file")
