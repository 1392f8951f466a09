"""verify_ledger."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection

from approvals import accepting, append_only, decisions, ledger, signatures
from approvals.models import Checkpoint, Decision, Event
from approvals.proof import checkpoints, keys, signing_key
from tests.conftest import Clerk, says
from tests.passkeys import Passkey
from tests.rows import a_decision, a_request, decide


def verify(*arguments: str) -> tuple[int, str]:
    """The exit status, and the output."""
    out = StringIO()
    try:
        call_command("verify_ledger", *arguments, stdout=out, stderr=out)
    except SystemExit as stopped:
        return int(str(stopped.code)), out.getvalue().strip()
    return 0, out.getvalue().strip()


@pytest.fixture
def chains(db: None) -> list[str]:
    """Two runs' chains of five events each."""
    made = [ledger.run_chain(uuid.UUID(int=number)) for number in (1, 2)]
    with ledger.transaction():
        for chain in made:
            for number in range(5):
                ledger.record(chain, "run.noted", {"number": number})
    return made


@pytest.fixture
def unguarded(db: None) -> Iterator[None]:
    """A database administrator at work: the guard is removed, and put back."""
    append_only.remove(connection)
    yield
    append_only.install(connection)


def test_a_whole_ledger_holds(chains: list[str]) -> None:
    assert verify() == (0, "The ledger holds: 10 events.")
    assert verify("--run", str(uuid.UUID(int=1))) == (0, "The ledger holds: 5 events.")
    assert json.loads(verify("--json")[1]) == {
        "holds": True, "events": 10, "first_broken": None, "checkpoints": 0, "keys": [], "signed": 0,
        "first_unsigned": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "seq", "problem"),
    [
        ({"actor": "user:1:eve"}, 3, "its columns do not match its text"),
        ({"body": "{}"}, 3, "its text does not match its hash"),
        ({"hash": "0" * 64}, 3, "its text does not match its hash"),
    ],
)
def test_the_first_changed_event_is_named(
    chains: list[str], unguarded: None, change: dict[str, str], seq: int, problem: str
) -> None:
    Event.objects.filter(chain=chains[1], seq=3).update(**change)
    code, said = verify()
    assert code == 1
    first, *beside = said.splitlines()
    assert first == f"The ledger is broken at {chains[1]}, event 3: {problem}. The 7 events checked before it hold."
    assert [line.split()[:2] for line in beside] == [["before:", "2"], ["found:", "3"], ["after:", "4"]]
    code, said = verify("--json")
    assert code == 1
    broken = json.loads(said)["first_broken"]
    assert (broken["chain"], broken["seq"], broken["problem"]) == (chains[1], 3, problem)
    assert [broken[beside]["seq"] for beside in ("before", "found", "after")] == [2, 3, 4]
    assert verify("--run", str(uuid.UUID(int=1)))[0] == 0
    assert verify("--run", str(uuid.UUID(int=2)))[0] == 1


def test_it_says_how_far_checkpoints_vouch_for_it(chains: list[str]) -> None:
    [made] = checkpoints.make()
    code, said = verify()
    assert code == 0
    assert said.splitlines()[1].startswith("The checkpoints hold: 1, the last of")
    assert said.splitlines()[1].endswith(f"over 11 events: {made.digest}")


def test_it_says_by_which_keys_checkpoints_were_checked(chains: list[str], settings: Any, tmp_path: Path) -> None:
    first = checkpoints.make()[0].key_id
    second = keys.rotate(tmp_path / "next.key").key_id
    settings.LEDGER = replace(settings.LEDGER, signing_key="", signing_key_file=tmp_path / "next.key")
    settings.LEDGER = replace(settings.LEDGER, trusted_keys=(first,))
    checkpoints.make()
    assert verify()[1].splitlines()[2:] == [f"  signed with the key {first}", f"  signed with the key {second}"]
    assert json.loads(verify("--json")[1])["keys"] == [first, second]
    settings.LEDGER = replace(settings.LEDGER, trusted_keys=())
    assert json.loads(verify("--json")[1])["keys"] == []


def test_a_checkpoint_that_was_changed_is_named(chains: list[str], unguarded: None) -> None:
    [made] = checkpoints.make()
    Checkpoint.objects.update(statement=made.statement.replace('"leaves":3', '"leaves":4'))
    code, said = verify()
    assert code == 1
    assert said.startswith("The ledger is broken at checkpoint 1: what it states does not match its digest.")


def test_a_removed_event_is_missed(chains: list[str], unguarded: None) -> None:
    Event.objects.filter(chain=chains[0], seq=2).delete()
    code, said = verify()
    assert (code, "event 2 is missing" in said) == (1, True)


def test_a_run_is_named_as_on_its_page(clerk: Clerk) -> None:
    run = clerk.run(says("done"))
    whole = verify("--run", str(run.pk))
    assert (whole[0], whole[1].startswith("The ledger holds")) == (0, True)
    assert verify("--run", run.reference) == verify("--run", run.reference.removeprefix("run_")) == whole
    with pytest.raises(CommandError, match="'run_000000': There is nothing kept"):
        verify("--run", "run_000000")


@pytest.mark.parametrize("run", ["nonsense", str(uuid.UUID(int=9))])
def test_a_run_without_events_is_not_called_whole(chains: list[str], run: str) -> None:
    with pytest.raises(CommandError):
        verify("--run", run)


@pytest.fixture
def signed(dana: User, marco: User) -> list[Decision]:
    """Two requests, each approved with a passkey's signature."""
    made = []
    for user in (dana, marco):
        approval = a_request(assurance_needed="signed")
        plain = a_decision(approval, user, assurance="")
        statement = signatures.statement_of(accepting.decision_of(approval, plain, None), "n")
        taken = decide(approval, replace(plain, assertion=Passkey().assertion(statement)))
        assert isinstance(taken, decisions.Taken)
        made.append(taken.decision)
    return made


def test_it_says_how_many_signed_decisions_hold(signed: list[Decision]) -> None:
    code, said = verify()
    assert code == 0
    assert said.endswith("The signatures hold: 2 signed decisions.")
    assert "1 signed decision" in verify("--run", str(signed[0].approval.run_id))[1]
    assert json.loads(verify("--json")[1])["signed"] == 2


def test_it_names_the_first_signed_decision_that_does_not_hold(signed: list[Decision]) -> None:
    assert signed[1].signature is not None
    Decision.objects.filter(pk=signed[1].pk).update(action_digest="0" * 64)
    code, said = verify()
    assert code == 1
    assert (
        f"The signed decision {signed[1].pk} about {signed[1].approval.reference} does not hold: "
        "it is not the decision that was signed. Besides, 1 signed decision verified." in said
    )
    said = json.loads(verify("--json")[1])
    assert (said["holds"], said["first_broken"]) == (False, None)
    assert said["first_unsigned"] == {
        "decision": str(signed[1].pk),
        "reference": signed[1].approval.reference,
        "problem": "it is not the decision that was signed",
    }
    assert verify("--run", str(signed[0].approval.run_id))[0] == 0


def test_without_a_key_it_is_said_that_checkpoints_are_not_vouched_for(
    chains: list[str], settings: Any, tmp_path: Path
) -> None:
    checkpoints.make()
    key = signing_key.public_key().key_id
    settings.LEDGER = replace(settings.LEDGER, signing_key="", signing_key_file=tmp_path / "none", makes_key=False)
    code, told = verify()
    assert (code, "cannot be vouched for" in told, "The checkpoints hold" in told) == (0, True, False)
    settings.LEDGER = replace(settings.LEDGER, trusted_keys=(key,))
    assert "cannot be vouched for" not in verify()[1]
