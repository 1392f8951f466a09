import base64
import os
import stat
import threading
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from approvals.proof import signing_key
from approvals.proof.signing_key import NoKey, holds, public_key, sign

SEED = bytes(range(32))
PUBLIC = base64.b64encode(Ed25519PrivateKey.from_private_bytes(SEED).public_key().public_bytes_raw()).decode()


def pem(key) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def given(settings, text: str) -> None:
    settings.LEDGER = replace(settings.LEDGER, signing_key=text)


def test_what_is_signed_is_held_by_the_public_key_alone(key):
    signature = sign("14:00 77b0")
    assert signature.key_id == key.key_id == signing_key.fingerprint(key.value_b64)
    assert holds("14:00 77b0", signature.value_b64, key.value_b64)
    assert not holds("14:00 77b1", signature.value_b64, key.value_b64)
    assert not holds("14:00 77b0", signature.value_b64, PUBLIC)


@pytest.mark.parametrize("wrong", ["", "AAAA", "not base64", "=" * 88])
def test_what_is_no_signature_or_no_key_holds_nothing(key, wrong):
    assert not holds("text", wrong, key.value_b64)
    assert not holds("text", sign("text").value_b64, wrong)


@pytest.mark.parametrize(
    "text",
    [
        base64.b64encode(SEED).decode(),
        pem(Ed25519PrivateKey.from_private_bytes(SEED)),
        pem(Ed25519PrivateKey.from_private_bytes(SEED)).replace("\n", "\\n"),
    ],
    ids=["seed", "pem", "pem in one line"],
)
def test_a_key_comes_from_the_environment_before_any_file(settings, text):
    given(settings, text)
    assert public_key().value_b64 == PUBLIC


@pytest.mark.parametrize(
    "text", ["hunter2", base64.b64encode(SEED[1:]).decode(), pem(generate_private_key(SECP256R1()))]
)
def test_a_key_that_cannot_be_read_is_refused_and_not_quoted(settings, text):
    given(settings, text)
    with pytest.raises(NoKey) as refused:
        sign("anything")
    assert text not in str(refused.value)
    assert "neither" in signing_key.problem()


def test_a_key_is_made_once_for_its_owner_alone(settings, key):
    file = settings.LEDGER.signing_key_file
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert signing_key.generate(file) == key == public_key()
    assert os.listdir(file.parent) == ["ledger.key"]


def test_a_key_that_was_brought_is_taken_where_nothing_can_be_written(key, folder):
    mounted = folder / "secrets"
    mounted.mkdir()
    (mounted / "next.key").write_text(base64.b64encode(SEED).decode())
    mounted.chmod(0o500)
    before = mounted.stat().st_mtime_ns
    assert signing_key.generate(mounted / "next.key").value_b64 == PUBLIC
    assert mounted.stat().st_mtime_ns == before  # root could write all the same


def test_a_file_that_holds_no_key_is_none(folder):
    (folder / "empty.key").touch()
    with pytest.raises(NoKey, match="neither"):
        signing_key.generate(folder / "empty.key")


def test_processes_that_start_together_make_one_key(folder):
    made, together = set(), threading.Barrier(8)

    def start() -> None:
        together.wait(timeout=30)
        made.add(signing_key.generate(folder / "other.key"))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(made) == 1


def test_where_no_key_is_made_there_is_none_until_somebody_brings_it(settings, folder):
    settings.LEDGER = replace(settings.LEDGER, makes_key=False, signing_key_file=folder / "later.key")
    with pytest.raises(NoKey, match="LEDGER_SIGNING_KEY"):
        sign("anything")
    brought = signing_key.generate(folder / "later.key")
    assert (public_key(), signing_key.problem()) == (brought, "")


def test_settings_do_not_show_the_key(settings):
    given(settings, "c2VjcmV0")
    assert "c2VjcmV0" not in repr(settings.LEDGER)
