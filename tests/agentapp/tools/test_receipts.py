"""A tool in Python receives people's decision about its call, signed, and can pass it on."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from agentapp.tools.base import ToolContext, tool
from approvals.proof import signing_key
from tests.approvals.proof.exports import said_of_proof
from tests.conftest import Clerk, call, calls, says

HANDED_ON: list[str] = []


@tool(effect="irreversible")
def wire(amount: float, context: ToolContext) -> str:
    """Send money."""
    HANDED_ON.append(context.approval_receipt())
    return "Sent."


@tool(effect="read")
def peek(context: ToolContext) -> str:
    """Look at what there is."""
    HANDED_ON.append(context.approval_receipt())
    return "Nothing."


@pytest.fixture(autouse=True)
def offered(offer: Callable[..., Any]) -> None:
    HANDED_ON.clear()
    offer(wire, peek)


def test_it_says_who_approved_which_call_and_an_outsider_can_check_it(clerk: Clerk, dana: User, tmp_path: Path) -> None:
    run = clerk.run(calls(call("w", "wire", amount=5)), says("Done."))
    [approval] = clerk.open(run)
    assert HANDED_ON == []
    clerk.decide(approval, dana)
    assert clerk.drive(run).state == "succeeded"

    [header] = HANDED_ON
    receipt = json.loads(base64.urlsafe_b64decode(header))
    assert (receipt["approval"], receipt["reference"], receipt["run"]) == (
        str(approval.pk), approval.reference, str(run.pk),
    )  # fmt: skip
    assert (receipt["tool"], receipt["decision"]) == ("wire", "used")
    assert (receipt["action_digest"], receipt["deciders"][0]["user"]) == (approval.action_digest, f"user:{dana.pk}")
    file, key = tmp_path / "receipt.json", signing_key.public_key().key_id
    file.write_text(json.dumps(receipt))
    assert said_of_proof(file, key)[0] == 0
    file.write_text(json.dumps({**receipt, "tool": "another"}))
    assert said_of_proof(file, key)[0] == 1


def test_a_call_that_nobody_was_asked_about_has_none(clerk: Clerk) -> None:
    clerk.run(calls(call("p", "peek")), says("Done."))
    assert HANDED_ON == [""]


def test_without_a_key_there_is_none_and_the_call_runs(clerk: Clerk, dana: User, settings: Any, tmp_path: Path) -> None:
    run = clerk.run(calls(call("w", "wire", amount=5)), says("Done."))
    clerk.decide(clerk.open(run)[0], dana)
    settings.LEDGER = replace(settings.LEDGER, signing_key="", signing_key_file=tmp_path / "none", makes_key=False)
    assert clerk.drive(run).state == "succeeded"
    assert HANDED_ON == [""]
