import hashlib
import json

from approvals.digest import canonical
from approvals.proof.manifest import Manifest
from approvals.proof.signing_key import holds


def test_a_manifest_counts_what_was_written_and_signs_it(key):
    manifest = Manifest({"tool": "pay"}, "user:5:dana")
    lines = [b'{"n":1}\n', b'{"n":2}\n']
    assert [manifest.feed(line) for line in lines] == lines
    for event_hash in ("a" * 64, "b" * 64, "c" * 64):
        manifest.note(event_hash)
    line = manifest.finish()
    said = json.loads(line)
    assert line == canonical(said) + "\n"
    assert said["sha256"] == hashlib.sha256(b"".join(lines)).hexdigest()
    assert (said["count"], said["first_hash"], said["last_hash"]) == (3, "a" * 64, "c" * 64)
    assert (said["kind"], said["filter"], said["by"]) == ("manifest", {"tool": "pay"}, "user:5:dana")
    assert said["key_id"] == key.key_id
    signature = said.pop("signature")
    assert holds(canonical(said), signature, key.value_b64)
    assert not holds(canonical(said | {"count": 2}), signature, key.value_b64)


def test_an_export_of_nothing_has_a_manifest_too():
    said = json.loads(Manifest({}, "system").finish())
    assert (said["count"], said["first_hash"], said["last_hash"]) == (0, "", "")
    assert said["sha256"] == hashlib.sha256(b"").hexdigest()
