"""Threats, the defence against each, and proof that it is the defence that works: without it the attack succeeds.

Each threat is one function that attacks and says whether it succeeded, and one that removes the defence. The numbers
are those of the threats in docs/security.md, which names the tests of the threats that are not here.
"""

import httpx2
from django.contrib.auth.models import Group, User
from django.db import Error, connection, transaction
from django.middleware.csrf import CsrfViewMiddleware
from django.template import engines
from django.test import Client

from agentapp import actions, auth, open_runs, proposals, recheck, starters
from agentapp.models import Run, Tool
from agentapp.tools import outbound
from approvals import accepting, append_only, policy, standing
from approvals.admin_pages import ReadOnlyAdmin
from approvals.models import Decision, Event, Rule, Verdict
from tests.clerk_tools import effects_of
from tests.conftest import call, calls, says
from tests.security.scene import PAY, Scene, Threat, body_of, scene, tried

__all__ = ["scene"]

MARKUP = "<form action='/decide/'><button>Approved by Dana</button></form>"


# --- The attacks -------------------------------------------------------------------------------


def a_hijacked_model_acts(scene: Scene) -> bool:
    scene.clerk.run(calls(call("m", "read_mail")), PAY, says("done"))
    return bool(effects_of("pay"))


def everything_is_allowed(scene: Scene) -> None:
    allowed = policy.Ruling(verdict=Verdict.ALLOW, reason="", risk="low")
    scene.patch.setattr(policy, "_without_a_rule", lambda call: allowed)


def a_call_imitates_the_console(scene: Scene) -> bool:
    paid = calls(call("a", "pay", account="ana", amount=20, memo=MARKUP), text=MARKUP)
    _, approval = scene.asked(paid)
    return MARKUP in scene.browser(scene.dana).get(f"/approvals/{approval.pk}/").text


def nothing_is_escaped(scene: Scene) -> None:
    scene.patch.setattr(engines["django"].engine, "autoescape", False)


def the_starter_approves(scene: Scene) -> bool:
    _, approval = scene.asked()
    scene.clerk.starter.groups.add(Group.objects.get(name="approver"))
    scene.browser(scene.clerk.starter).post(f"/approvals/{approval.pk}/decide/", body_of(approval))
    return Decision.objects.exists()


def anybody_decides(scene: Scene) -> None:
    for module in (standing, accepting):
        scene.patch.setattr(module, "right_of", lambda *_, **__: standing.Right())


def a_script_of_a_result_runs(scene: Scene) -> bool:
    """Whether the page's policy would let a script in its text run."""
    _, approval = scene.asked()
    said = scene.browser(scene.dana).get(f"/approvals/{approval.pk}/").headers.get("Content-Security-Policy", "")
    rules = dict(rule.strip().split(" ", 1) for rule in said.split(";") if " " in rule.strip())
    scripts = rules.get("script-src", rules.get("default-src", "'unsafe-inline'"))
    return "'unsafe-inline'" in scripts


def no_policy_is_sent(scene: Scene) -> None:
    scene.settings.SECURE_CSP = {}


def another_site_posts(scene: Scene) -> bool:
    _, approval = scene.asked()
    client = scene.browser(scene.dana, enforce_csrf_checks=True)
    client.post(f"/approvals/{approval.pk}/decide/", body_of(approval))
    return Decision.objects.exists()


def no_form_is_checked(scene: Scene) -> None:
    scene.patch.setattr(CsrfViewMiddleware, "process_view", lambda *_: None)


def the_metadata_of_the_cloud_is_read(scene: Scene) -> bool:
    try:
        outbound.Outside().address_of(httpx2.URL("https://169.254.169.254/latest/meta-data/"))
    except outbound.OutboundRefused:
        return False
    return True


def inner_addresses_are_public(scene: Scene) -> None:
    scene.patch.setattr(outbound, "is_public", lambda address: True)


def a_stranger_reads_a_run(scene: Scene) -> bool:
    run, _ = scene.asked()
    return scene.browser(scene.outsider).get(f"/runs/{run.pk}/").status_code == 200


def runs_are_everybodys(scene: Scene) -> None:
    scene.patch.setattr(auth, "visible_runs", lambda user: Run.objects.all())
    scene.patch.setattr(auth, "may_see", lambda user, run: True)


def an_agent_is_borrowed(scene: Scene) -> bool:
    new = actions.NewRun(agent="clerk", input="Pay.", script=[says("done")])
    try:
        actions.start_run(new, scene.outsider)
    except actions.Refused:
        return False
    return True


def an_agent_lends_a_tool(scene: Scene) -> bool:
    """Somebody who may start runs has done what only other people's runs may do."""
    scene.kept("pay")
    Rule.objects.create(name="pays", tool="pay", verdict="allow")
    try:
        scene.clerk.run(PAY, says("done"))
    except actions.Refused:
        return False
    return bool(effects_of("pay"))


def nobody_is_barred(scene: Scene) -> None:
    scene.patch.setattr(starters, "barred", lambda *_: frozenset())


def one_person_floods_the_queue(scene: Scene) -> bool:
    scene.settings.OPEN_RUNS_PER_PERSON = 5
    new = actions.NewRun(agent="clerk", input="Pay.", script=[says("done")])
    for _ in range(6):
        try:
            actions.start_run(new, scene.clerk.starter)
        except actions.Refused:
            return False
    return True


def nobody_counts_runs(scene: Scene) -> None:
    scene.patch.setattr(open_runs, "limit", lambda user: None)


def anybody_starts(scene: Scene) -> None:
    scene.patch.setattr(auth, "may_start", lambda user: True)


def a_superuser_deletes_a_decision(scene: Scene) -> bool:
    _, approval = scene.asked()
    User.objects.filter(pk=scene.admin.pk).update(is_superuser=True)
    url = f"/admin/approvals/approval/{approval.pk}/delete/"
    return scene.browser(scene.admin).get(url).status_code == 200


def the_record_can_be_deleted(scene: Scene) -> None:
    scene.patch.setattr(ReadOnlyAdmin, "has_delete_permission", lambda *_, **__: True)


def a_call_outside_of_its_schema_runs(scene: Scene) -> bool:
    short = {"type": "object", "properties": {"to": {"type": "string", "maxLength": 3}}, "required": ["to"]}
    Tool.objects.filter(name="send").update(input_schema=short)
    Rule.objects.create(name="sends", tool="send", condition='args.to != "eve"', verdict="allow")
    scene.clerk.run(calls(call("s", "send", to="mallory")), says("done"))
    return bool(effects_of("send"))


def schemas_are_not_looked_at(scene: Scene) -> None:
    scene.patch.setattr(proposals, "fits", lambda tool, arguments: None)
    scene.patch.setattr(recheck, "check_arguments", lambda schema, arguments: [])


def an_event_is_rewritten(scene: Scene) -> bool:
    scene.asked()
    event = Event.objects.order_by("pk").first()
    assert event is not None
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("UPDATE approvals_event SET actor = 'nobody' WHERE id = %s", [
                event.pk.hex if connection.vendor == "sqlite" else event.pk
            ])  # fmt: skip
            changed = bool(cursor.rowcount)
            transaction.set_rollback(True)
    except Error:
        return False
    return changed


def the_ledger_is_not_guarded(scene: Scene) -> None:
    append_only.remove(connection)


def a_decision_outlives_its_right(scene: Scene) -> bool:
    run, approval = scene.asked()
    scene.clerk.decide(approval, scene.dana)
    scene.dana.groups.clear()
    scene.clerk.drive(run)
    return bool(effects_of("pay"))


def rights_are_not_looked_up_again(scene: Scene) -> None:
    scene.patch.setattr(standing, "deciders_still_allowed", lambda *_: True)


def a_password_is_guessed(scene: Scene) -> bool:
    client = Client()
    for guess in [*(f"guess {number}" for number in range(6)), "correct horse battery"]:
        client.post("/login/", {"username": "dana", "password": guess})
    return "_auth_user_id" in client.session


def guesses_are_not_counted(scene: Scene) -> None:
    scene.settings.ACCOUNT_RATE_LIMITS = {"login_failed": False}


THREATS = [
    Threat(1, "what was read makes the model act", "whatever no rule allows asks a person",
           a_hijacked_model_acts, everything_is_allowed),
    Threat(2, "a call imitates the console", "text from outside is escaped",
           a_call_imitates_the_console, nothing_is_escaped),
    Threat(4, "whoever started a run approves its calls", "the starter is compared", the_starter_approves,
           anybody_decides),
    Threat(7, "a script in a result runs", "a content security policy", a_script_of_a_result_runs, no_policy_is_sent),
    Threat(8, "another site posts a decision", "forms carry a token", another_site_posts, no_form_is_checked),
    Threat(9, "an address leads inside", "only public addresses are reached",
           the_metadata_of_the_cloud_is_read, inner_addresses_are_public),
    Threat(11, "a stranger reads a run", "one queryset for each person", a_stranger_reads_a_run, runs_are_everybodys),
    Threat(13, "an agent is borrowed", "starting is a right", an_agent_is_borrowed, anybody_starts),
    Threat(13, "an agent lends a tool to whoever starts it", "a tool is kept to some people's runs",
           an_agent_lends_a_tool, nobody_is_barred),
    Threat(14, "a superuser deletes what is on record", "the admin only shows it",
           a_superuser_deletes_a_decision, the_record_can_be_deleted),
    Threat(18, "a call has arguments that its tool does not take", "schemas",
           a_call_outside_of_its_schema_runs, schemas_are_not_looked_at),
    Threat(19, "an event is rewritten", "triggers", an_event_is_rewritten, the_ledger_is_not_guarded),
    Threat(21, "a decision outlives its right", "rights are looked up again before the call",
           a_decision_outlives_its_right, rights_are_not_looked_up_again),
    Threat(22, "a password is guessed", "failures are counted", a_password_is_guessed, guesses_are_not_counted),
    Threat(22, "one person floods the queue", "runs under way are counted", one_person_floods_the_queue,
           nobody_counts_runs),
]  # fmt: skip
test_the_attack_fails, test_without_the_defence_it_succeeds = tried(THREATS)
