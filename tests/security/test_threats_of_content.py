"""Threats of what comes in and goes out, tested like those of `test_threats.py`: secrets, files and formulas."""

import csv
import dataclasses
import io
import logging
import os
import zipfile
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from django.test import Client

from agentapp import auth, discretion, executions, logs, secrecy
from agentapp.audit import exporting
from agentapp.llm import providers
from agentapp.models import Tool
from agentapp.tools import credentials, mcp_source, mcp_target
from approvals import lens, masking
from tests.agentapp.tools.test_credentials import SECRET, offer, parrot
from tests.conftest import call, calls, says
from tests.mcp_servers import Peer, command, kept_peers, run, started
from tests.privacy.test_planted import as_configured
from tests.security.scene import OPENAI, Scene, Threat, scene, tried
from tests.wire import Answer

__all__ = ["kept_peers", "parrot", "scene", "started"]
# Of a shape that is recognised; and of none.
KEY = "sk-live-4f9a8b7c6d5e4f3a2b1c0d9e"
UNSHAPED = "correct+horse+battery"
FORMULA = '=HYPERLINK("https://mallory.example")'


def unchanged(value: Any, *_: Any) -> Any:
    return value


# --- Secrets -----------------------------------------------------------------------------------


def a_tool_returns_a_key(scene: Scene) -> bool:
    run = scene.clerk.run(calls(call("l", "look_up", what=KEY)), says("done"))
    return KEY in scene.clerk.execution(run, "l").result_text


def a_tool_breaks_over_a_key(scene: Scene) -> bool:
    run = scene.clerk.run(calls(call("f", "fail", how=f"no access with {KEY}")), says("done"))
    return KEY in scene.clerk.execution(run, "f").message


def answers_are_kept_as_they_came(scene: Scene) -> None:
    scene.patch.setattr(executions, "without_secrets", unchanged)


def a_line_of_the_log_quotes_a_key(scene: Scene) -> bool:
    written = io.StringIO()
    handlers = [as_configured(form, written) for form in ("line", "json")]
    for each in handlers:
        logging.getLogger("agentapp.of_this_test").addHandler(each)
    try:
        try:
            raise RuntimeError(f"refused: {KEY}")
        except RuntimeError:
            logging.getLogger("agentapp.of_this_test").exception("Asked with %s", KEY)
    finally:
        for each in handlers:
            logging.getLogger("agentapp.of_this_test").removeHandler(each)
    assert written.getvalue().count("Asked with") == 2
    return KEY in written.getvalue()


def lines_are_not_looked_over(scene: Scene) -> None:
    scene.patch.setattr(logs, "clean", unchanged)


def a_page_shows_a_key(scene: Scene) -> bool:
    _, approval = scene.asked(calls(call("a", "pay", account=KEY, amount=20)))
    page = scene.browser(scene.dana).get(f"/approvals/{approval.pk}/")
    assert page.status_code == 200
    return KEY in page.text


def the_api_shows_a_key(scene: Scene) -> bool:
    return KEY in told_by_the_api(scene, KEY).text


def told_by_the_api(scene: Scene, account: str) -> Any:
    """The API's answer about a request to pay somebody."""
    _, approval = scene.asked(calls(call("a", "pay", account=account, amount=20)))
    _, secret = auth.issue_token(scene.dana, "reads", ["approvals:read"], "test", issued_by=scene.dana)
    told = Client(headers={"authorization": f"Bearer {secret}"}).get(f"/api/v1/approvals/{approval.pk}")
    assert told.status_code == 200
    return told


def what_is_shown_is_not_looked_over(scene: Scene) -> None:
    """Two places remove what looks like a key: the one that shows a value, and the one that sends any answer."""
    for module in (masking, discretion, lens):
        scene.patch.setattr(module, "without_secrets", unchanged)
    for module in (discretion, lens):
        scene.patch.setattr(module, "clean", unchanged)


def a_result_repeats_a_secret_argument(scene: Scene) -> bool:
    Tool.objects.filter(name="look_up").update(secret_fields=["what"])
    run = scene.clerk.run(calls(call("l", "look_up", what=UNSHAPED)), says("done"))
    _, secret = auth.issue_token(scene.dana, "reads", ["runs:read"], "test", issued_by=scene.dana)
    api = Client(headers={"authorization": f"Bearer {secret}"})
    answers = [scene.browser(scene.dana).get(f"/runs/{run.pk}/?step=1&call=0"), api.get(f"/api/v1/runs/{run.pk}/trace")]
    assert [answer.status_code for answer in answers] == [200, 200]
    return all(UNSHAPED in unescape(answer.text) for answer in answers)


def secret_arguments_are_not_looked_for(scene: Scene) -> None:
    scene.patch.setattr(secrecy, "blotted_within", unchanged)


def an_error_repeats_a_secret_argument(scene: Scene) -> bool:
    Tool.objects.filter(name="fail").update(secret_fields=["how"])
    run = scene.clerk.run(calls(call("f", "fail", how=UNSHAPED)), says("done"))
    return UNSHAPED in scene.clerk.execution(run, "f").message


def errors_are_kept_with_secret_arguments(scene: Scene) -> None:
    scene.patch.setattr(executions, "blotted", unchanged)


def a_provider_quotes_our_key(scene: Scene) -> bool:
    answer = Answer(OPENAI.error(f"{UNSHAPED} may not do that", "bad_request"), 400)
    run = scene.provided(answer, key=UNSHAPED)
    assert "may not do that" in run.stop_message
    return UNSHAPED in run.stop_message


def our_keys_are_not_looked_for(scene: Scene) -> None:
    scene.patch.setattr(providers, "secrets", list)


# --- Files -------------------------------------------------------------------------------------


def a_cell_is_a_formula(scene: Scene) -> bool:
    scene.clerk.run(calls(call("h", FORMULA)), says("done"))
    answer = scene.browser(scene.admin).post("/audit/export/csv/")
    with zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content))) as archive:
        rows = list(csv.reader(io.StringIO(archive.read(exporting.CSV_NAME).decode())))
    assert any(FORMULA in cell for row in rows for cell in row)
    return any(cell == FORMULA for row in rows for cell in row)


def cells_are_written_as_they_are(scene: Scene) -> None:
    scene.patch.setattr(exporting, "inert", str)


def an_answer_in_json_is_read_as_a_page(scene: Scene) -> bool:
    """Whether a browser may take the words of a call for markup, though they are said to be JSON."""
    told = told_by_the_api(scene, "<script>alert(1)</script>")
    assert "<script>" in told.text
    assert told["Content-Type"].startswith("application/json")
    return told.headers.get("X-Content-Type-Options") != "nosniff"


def browsers_may_guess(scene: Scene) -> None:
    scene.settings.SECURE_CONTENT_TYPE_NOSNIFF = False


THREATS = [
    Threat(7, "a cell of an exported file is a formula", "an apostrophe before it", a_cell_is_a_formula,
           cells_are_written_as_they_are),
    Threat(7, "an answer in JSON is read as a page", "browsers may not guess", an_answer_in_json_is_read_as_a_page,
           browsers_may_guess),
    Threat(10, "a tool returns a key", "results are kept without", a_tool_returns_a_key,
           answers_are_kept_as_they_came),
    Threat(10, "a tool breaks over a key", "errors are kept without", a_tool_breaks_over_a_key,
           answers_are_kept_as_they_came),
    Threat(10, "a line of the log quotes a key", "lines are written without", a_line_of_the_log_quotes_a_key,
           lines_are_not_looked_over),
    Threat(10, "a page shows a key", "values are shown without, and answers sent without", a_page_shows_a_key,
           what_is_shown_is_not_looked_over),
    Threat(10, "the API shows a key", "values are shown without, and answers sent without", the_api_shows_a_key,
           what_is_shown_is_not_looked_over),
    Threat(10, "a result repeats a secret argument", "results are shown without", a_result_repeats_a_secret_argument,
           secret_arguments_are_not_looked_for),
    Threat(10, "an error repeats a secret argument", "errors are kept without", an_error_repeats_a_secret_argument,
           errors_are_kept_with_secret_arguments),
    Threat(10, "a provider quotes our key", "its errors are kept without", a_provider_quotes_our_key,
           our_keys_are_not_looked_for),
]  # fmt: skip
test_the_attack_fails, test_without_the_defence_it_succeeds = tried(THREATS)


@pytest.mark.parametrize("attack", [a_page_shows_a_key, the_api_shows_a_key])
@pytest.mark.parametrize("left", [[masking], [discretion, lens]], ids=["as it is shown", "as it is sent"])
def test_either_look_over_what_is_shown_is_enough(
    scene: Scene, left: list[Any], attack: Callable[[Scene], bool]
) -> None:
    kept = [(module, name, getattr(module, name, None)) for module in left for name in ("without_secrets", "clean")]
    what_is_shown_is_not_looked_over(scene)
    for module, name, was in kept:
        if was is not None:
            scene.patch.setattr(module, name, was)
    assert not attack(scene)


class TestAServiceThatRepeatsItsCredential:
    """Threat 10: it is not shaped like a key, so only we can know it."""

    def attack(self, scene: Scene, address: str) -> bool:
        offer(scene.clerk, address, "query", "SHOP")
        run = scene.clerk.run(calls(call("g", "get_order", id="200-plain")), says("done"))
        execution = scene.clerk.execution(run, "g")
        assert "you sent" in execution.result_text
        return SECRET in execution.result_text

    def test_the_attack_fails(self, scene: Scene, parrot: str) -> None:
        assert not self.attack(scene, parrot)

    def test_without_the_defence_it_succeeds(self, scene: Scene, parrot: str) -> None:
        scene.patch.setattr(credentials, "redacted", unchanged)
        assert self.attack(scene, parrot)


class TestACommandThatTellsWhatItWasStartedWith:
    """Threat 10: of an MCP server that is started here."""

    def told(self, scene: Scene, peer: Peer) -> str:
        scene.patch.setenv("CREDENTIAL_SHOP", SECRET)
        scene.patch.setenv("CREDENTIAL_BANK", UNSHAPED)
        scene.settings.MCP_COMMANDS["peer"] = command(peer.folder, credentials={"SHOP_TOKEN": "SHOP"})
        answer = run(peer.tool("environment", "read"), {})
        assert "SHOP_TOKEN" in str(answer.data)
        return str(answer.data)

    def everything_is_inherited(self, scene: Scene) -> None:
        real = mcp_target._of_command

        def generous(source: str, configured: dict[str, Any]) -> mcp_target.Target:
            target = real(source, configured)
            assert target.command is not None
            given = tuple(sorted({**os.environ, **dict(target.command.environment)}.items()))
            return dataclasses.replace(target, command=dataclasses.replace(target.command, environment=given))

        scene.patch.setattr(mcp_target, "_of_command", generous)

    def test_the_credential_it_is_given_is_taken_out_of_its_answer(self, scene: Scene, started: Peer) -> None:
        assert SECRET not in self.told(scene, started)

    def test_without_that_it_is_in_the_answer(self, scene: Scene, started: Peer) -> None:
        scene.patch.setattr(mcp_source, "redacted", unchanged)
        assert SECRET in self.told(scene, started)

    def test_it_is_not_started_with_what_belongs_to_others(self, scene: Scene, started: Peer) -> None:
        assert UNSHAPED not in self.told(scene, started)

    def test_if_it_inherits_everything_it_tells_it(self, scene: Scene, started: Peer) -> None:
        self.everything_is_inherited(scene)
        assert UNSHAPED in self.told(scene, started)
