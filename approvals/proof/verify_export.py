#!/usr/bin/env python3
"""Checks a ledger that Countersign exported, without Countersign: Python and its `cryptography` package are enough.

    python verify_export.py FILE --key FINGERPRINT [--anchor checkpoints.jsonl] [--manifest FILE]

FILE is the whole ledger or a part in JSON lines, or a table in CSV (with --manifest). FINGERPRINT is of a key you trust
and comes from somebody you trust, never from the file. --anchor compares it with the checkpoints that you, or a place
you trust, have noted. Exits with status 0 if all holds, with 1 if not, saying what, and with 2 if a file cannot be
read, as after an incomplete download: that says nothing about the ledger. `verify_proof.py` checks events and receipts.
"""

import argparse
import hashlib
import json
import re
import uuid
from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

type Json = dict[str, Any]
GENESIS = "0" * 64
NO_HEAD = {"seq": 0, "hash": GENESIS}
SHOWN = "{seq} {type} {at} {hash}"
ACTOR_KEY = re.compile(r"user:\d+(?=:)|.*?(?= \(|$)", re.DOTALL)  # 'user:5' of 'user:5:dana (token CI)'
MALFORMED = (ValueError, LookupError, TypeError, AttributeError, RecursionError)


def need(holds: object, problem: str) -> None:
    if not holds:
        raise ValueError(problem)


def parsed(path: Path, text: str | bytes) -> Any:
    """What a file, or a line of it, says. Raises OSError if it is not JSON: it is cut off, or not Countersign's."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise OSError(0, "it is not JSON (an incomplete download?)", str(path)) from None


def sha(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def root(leaves: list[bytes]) -> bytes:
    """The root of a Merkle tree, as RFC 6962 defines it."""
    if len(leaves) < 2:
        return sha(b"\0" + leaves[0]) if leaves else sha(b"")
    half = 1 << ((len(leaves) - 1).bit_length() - 1)
    return sha(b"\1" + root(leaves[:half]) + root(leaves[half:]))


def signed(text: str, signature: str, key: str) -> bool:
    try:
        raw = b64decode(signature)
        Ed25519PublicKey.from_public_bytes(b64decode(key)).verify(raw, text.encode())
    except (InvalidSignature, ValueError):
        return False
    return b64encode(raw).decode() == signature  # only this spelling: no changed byte passes


def trusted(manifest: Json, known: list[str]) -> dict[str, str]:
    """Public keys by fingerprint: those known, and those that a known one says follow. None vouches for itself."""
    rows, found = manifest.get("keys") or manifest.get("succession", []), set(known)
    keys = {sha(b64decode(row["public_key"])).hex(): row["public_key"] for row in (*rows, manifest)}
    for row in rows:
        said = json.loads(row["statement"])
        before, after = said["previous"], sha(b64decode(said["public_key"])).hex()
        endorsed = before in found and signed(row["statement"], row["endorsement"], keys.get(before, ""))
        if endorsed and said["kind"] == "key":
            found.add(after)
    return {name: keys[name] for name in found & keys.keys()}


def check_manifest(manifest: Json, keys: dict[str, str], sha256: str) -> None:
    rest = {name: value for name, value in manifest.items() if name != "signature"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    need(manifest["key_id"] in keys, f"the manifest is signed with a key you do not trust: {manifest['key_id']}")
    need(signed(text, manifest["signature"], keys[manifest["key_id"]]), "the signature of the manifest does not hold")
    need(("manifest", sha256) == (manifest["kind"], manifest["sha256"]), "the export is not what its manifest says")


def check_checkpoints(told: dict[str, list[Json]], keys: dict[str, str], noted: dict[int, str]) -> None:
    """Each is signed, follows the one before, has the root of what it covers, and is as it was noted outside."""
    leaves, before, events = defaultdict(list), GENESIS, 0
    for one in told["leaf"]:
        text = "\n".join(str(one[column]) for column in ("chain", "first", "last", "hash", "root"))
        leaves[one["checkpoint"]].append(text.encode())
    for number, row in enumerate(told["checkpoint"], 1):
        name, text, said = f"checkpoint {number}", row["statement"], json.loads(row["statement"])
        need(said["key_id"] in keys, f"{name} is signed with a key you do not trust: {said['key_id']}")
        need(signed(text, row["signature"], keys[said["key_id"]]), f"the signature of {name} does not hold")
        need((said["kind"], said["number"]) == ("checkpoint", number), f"{name} is missing")
        need(noted.pop(number, text) == text, f"a different {name} was noted outside")
        covered, events = leaves.pop(number, []), events + said["events"]
        need((said["previous"], said["events_in_all"]) == (before, events), f"{name} does not follow the one before it")
        need((root(covered).hex(), len(covered)) == (said["root"], said["leaves"]), f"{name} covers something else")
        before = sha(text.encode()).hex()
    need(not leaves, f"checkpoint {min(leaves, default=0)} is missing")
    need(not noted, f"checkpoint {min(noted, default=0)} was noted outside but is not here")


def digits(key: Any) -> str | None:
    try:
        return uuid.UUID(key).hex if isinstance(key, str) and len(key) == 36 else None
    except ValueError:
        return None


def columns(said: Json) -> Json:
    """The columns beside an event's text, computed from the text alone: events are found by them."""
    data = said["data"] if isinstance(said["data"], dict) else {}
    tool, risk, took = data.get("tool"), data.get("risk"), data.get("took_ms")
    who, chain = ACTOR_KEY.match(said["actor"]), said["chain"]
    return {
        **{name: said[name] for name in ("id", "chain", "seq", "type", "actor", "at", "previous") if name in said},
        "run": chain[4:].replace("-", "") if chain.startswith("run:") else None,
        "actor_key": who and who[0],
        "approval": digits(data.get("approval")),
        "execution": digits(data.get("execution")),
        "tool": tool[:200] if isinstance(tool, str) else "",
        "risk": risk if isinstance(risk, str) and len(risk) <= 10 else "",
        "took_ms": took if isinstance(took, int) and not isinstance(took, bool) else None,
    }


def check_event(event: Json, seq: int, previous: str) -> None:
    need(event["seq"] == seq, f"event {seq} is missing")
    need(sha(event["body"].encode()).hex() == event["hash"], "its text does not match its hash")
    need(event["previous"] == previous, "it does not follow the event before it")
    wrong = [name for name, value in columns(json.loads(event["body"])).items() if event[name] != value]
    need(not wrong, f"its columns do not match its text: {', '.join(wrong)}")


def check_chain(chain: str, events: Iterator[Json], head: Json, parts: list[Json]) -> int:
    """Check a chain's events, what checkpoints vouch for of them, and its end. Returns how many events there are."""
    hashes, before, problem = [GENESIS], "none", ""
    for event in events:
        found = SHOWN.format_map(event)
        try:
            check_event(event, len(hashes), hashes[-1])
        except MALFORMED as error:
            after = next(events, None)
            beside = f"  before: {before}\n  found: {found}\n  after: {SHOWN.format_map(after) if after else 'none'}"
            problem = f"{event['seq']}: {error}\n{beside}"
            break
        hashes.append(event["hash"])
        before = found
    last = len(hashes) - 1
    for part in (part for part in parts if part["last"] <= last):
        covered = [bytes.fromhex(one) for one in hashes[part["first"] : part["last"] + 1]]
        what = f"it and those up to event {part['last']} are not what checkpoint {part['checkpoint']} vouches for"
        holds = (root(covered).hex(), hashes[part["last"]]) == (part["root"], part["hash"])
        need(holds, f"{chain}, event {part['first']}: {what}")
    need(not problem, f"{chain}, event {problem}")
    known = max(head["seq"], *(part["last"] for part in parts), last)
    need(last == known, f"{chain}, event {last + 1}: event {last + 1} is missing\n  before: {before}")
    need(head["seq"] == last, f"{chain}, event {head['seq'] + 1}: it was added behind the ledger's back")
    need(head["hash"] == hashes[-1], f"{chain}, event {last}: it is not the event that its chain ended with")
    return last


def check_ledger(lines: Iterator[Json], keys: dict[str, str], noted: dict[int, str]) -> str:
    """Check checkpoints, what they cover and the ends of chains; after the line `events`, the events chain by chain."""
    told, parts, count = defaultdict(list), defaultdict(list), 0
    for line in takewhile(lambda line: line["kind"] != "events", lines):
        told[line["kind"]].append(line)
    check_checkpoints(told, keys, noted)
    for line in told["leaf"]:
        parts[line["chain"]].append(line)
    heads = {line["chain"]: line for line in told["head"]}
    for name, events in groupby(takewhile(lambda line: line["kind"] == "event", lines), lambda line: line["chain"]):
        count += check_chain(name, events, heads.pop(name, NO_HEAD), parts.pop(name, []))
    for name in (*heads, *parts):
        check_chain(name, iter(()), heads.get(name, NO_HEAD), parts[name])
    return f"{count} events, {len(told['checkpoint'])} checkpoints"


def noted_in(anchor: Path) -> dict[int, str]:
    noted: dict[int, str] = {}
    for row in (parsed(anchor, line) for line in anchor.read_bytes().splitlines()):
        once = noted.setdefault(row["number"], row["statement"]) == row["statement"]
        need(once, f"two different checkpoints {row['number']} were noted outside")
    return noted


def check(path: Path, known: list[str], manifest_path: Path | None, anchor: Path | None) -> str:
    sha256, last = hashlib.sha256(), b""
    with path.open("rb") as file:
        for line in file:
            sha256.update(last)
            last = line
    if manifest_path:
        sha256.update(last)
    manifest = parsed(manifest_path, manifest_path.read_bytes()) if manifest_path else parsed(path, last)
    need("signature" in manifest, "it is not signed")
    keys = trusted(manifest, known)
    check_manifest(manifest, keys, sha256.hexdigest())
    with path.open("rb") as file:
        if "keys" in manifest:
            lines = (parsed(path, line) for line in file)
            return check_ledger(lines, keys, noted_in(anchor) if anchor else {})
        for row in () if manifest_path else (parsed(path, line) for line in file):
            if row["kind"] == "event":
                need(sha(row["body"].encode()).hex() == row["hash"], f"its text does not match its hash: {row['hash']}")
                holds = all(row.get(name, value) == value for name, value in columns(json.loads(row["body"])).items())
                need(holds, f"its columns do not match its text: {row['hash']}")
    return f"{manifest['count']} events of a filtered export {json.dumps(manifest['filter'])}"


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("file", type=Path)
    asked.add_argument(
        "--key", action="append", required=True, help="the fingerprint of a key you trust; may be repeated"
    )
    asked.add_argument("--anchor", type=Path, help="a file of checkpoints that were noted elsewhere")
    asked.add_argument("--manifest", type=Path, help="the manifest of a CSV export")
    given = asked.parse_args()
    try:
        print(f"OK: {check(given.file, given.key, given.manifest, given.anchor)}")
    except MALFORMED as error:
        print(f"BROKEN: {error}" if isinstance(error, ValueError) else "BROKEN: this is not a Countersign export")
        return 1
    except OSError as error:  # this says nothing about the ledger
        asked.error(f"{error.filename} cannot be read: {error.strerror}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
