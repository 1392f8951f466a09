#!/usr/bin/env python3
"""Checks one event or one decision that Countersign vouches for: Python and its `cryptography` package are enough.

    python verify_proof.py FILE --key FINGERPRINT

FILE is an inclusion proof or a receipt. FINGERPRINT is of a key you trust and comes from somebody you trust, never from
the file. Exits with status 0 if it holds, with 1 if not, saying what, and with 2 if the file cannot be read, as after
an incomplete download: that says nothing about the ledger. `verify_export.py` checks whole ledgers and exports.
"""

import argparse
import hashlib
import json
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

type Json = dict[str, Any]


def need(holds: object, problem: str) -> None:
    if not holds:
        raise ValueError(problem)


def parsed(path: Path) -> Any:
    """What a file says. Raises OSError if it is not JSON: it is cut off, or not Countersign's."""
    try:
        return json.loads(path.read_bytes())
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise OSError(0, "it is not JSON (an incomplete download?)", str(path)) from None


def sha(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def climb(content: bytes, index: int, size: int, path: list[str]) -> str:
    """The root of a Merkle tree (RFC 6962) that a leaf and its path lead to."""
    need(0 <= index < size, "the proof names a place outside its tree")
    hashed, last, steps = sha(b"\0" + content), size - 1, [bytes.fromhex(step) for step in path]
    while last > 0:
        if index % 2 or index < last:
            need(steps, "the proof is too short")
            hashed = sha(b"\1" + steps.pop(0) + hashed) if index % 2 else sha(b"\1" + hashed + steps.pop(0))
        index, last = index // 2, last // 2
    need(not steps, "the proof is too long")
    return hashed.hex()


def signed(text: str, signature: str, key: str) -> bool:
    try:
        raw = b64decode(signature)
        Ed25519PublicKey.from_public_bytes(b64decode(key)).verify(raw, text.encode())
    except (InvalidSignature, ValueError):
        return False
    return b64encode(raw).decode() == signature  # only this spelling: no changed byte passes


def trusted(rows: list[Json], known: list[str]) -> dict[str, str]:
    """Public keys by fingerprint: those known, and those that a known one says follow. None vouches for itself."""
    keys, found = {sha(b64decode(row["public_key"])).hex(): row["public_key"] for row in rows}, set(known)
    for row in rows:
        said = json.loads(row["statement"])
        before, after = said["previous"], sha(b64decode(said["public_key"])).hex()
        endorsed = before in found and signed(row["statement"], row["endorsement"], keys.get(before, ""))
        if endorsed and said["kind"] == "key":
            found.add(after)
    return {name: keys[name] for name in found & keys.keys()}


def check_inclusion(proof: Json, known: list[str]) -> str:
    event, part, tree, one = proof["event"], proof["part"], proof["tree"], proof["checkpoint"]
    keys, said, body = trusted(proof["keys"], known), json.loads(one["statement"]), json.loads(event["body"])
    need(said["key_id"] in keys, f"the checkpoint is signed with a key you do not trust: {said['key_id']}")
    need(
        signed(one["statement"], one["signature"], keys[said["key_id"]]),
        "the signature of the checkpoint does not hold",
    )
    need(said["kind"] == "checkpoint", "what is signed is not a checkpoint")
    need(sha(event["body"].encode()).hex() == event["hash"], "the text of the event does not match its hash")
    need(
        body["chain"] == part["chain"] and part["first"] <= body["seq"] <= part["last"], "the proof is of another event"
    )
    index, size = body["seq"] - part["first"], part["last"] - part["first"] + 1
    need(
        climb(bytes.fromhex(event["hash"]), index, size, part["path"]) == part["root"], "the event is not in its chain"
    )
    need(tree["size"] == said["leaves"], "the proof is of another checkpoint")
    leaf = "\n".join(str(part[name]) for name in ("chain", "first", "last", "hash", "root")).encode()
    need(climb(leaf, tree["index"], tree["size"], tree["path"]) == said["root"], "the event is not in the checkpoint")
    return f"{body['chain']}, event {body['seq']} ({body['type']}) was in the ledger at {said['made_at']}"


def check_receipt(receipt: Json, known: list[str]) -> str:
    rest = {name: value for name, value in receipt.items() if name != "signature"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    fingerprint = sha(b64decode(receipt["public_key"])).hex()
    follows = fingerprint in trusted(receipt.get("succession", []), known)
    need(fingerprint in known or follows, f"the receipt is signed with a key you do not trust: {fingerprint}")
    need(receipt["kind"] == "receipt" and receipt["key_id"] == fingerprint, "it is not a receipt")
    need(signed(text, receipt["signature"], receipt["public_key"]), "the signature of the receipt does not hold")
    return f"{receipt['reference']} was {receipt['decision']}, according to the receipt of {receipt['made_at']}"


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("file", type=Path)
    asked.add_argument(
        "--key", action="append", required=True, help="the fingerprint of a key you trust; may be repeated"
    )
    given = asked.parse_args()
    try:
        told = parsed(given.file)
        print(f"OK: {(check_inclusion if told['kind'] == 'inclusion' else check_receipt)(told, given.key)}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        print(
            f"BROKEN: {error}"
            if isinstance(error, ValueError)
            else "BROKEN: this is not a Countersign proof or receipt"
        )
        return 1
    except OSError as error:  # this says nothing about the ledger
        asked.error(f"{error.filename} cannot be read: {error.strerror}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
