"""Which pictures there are: every page and its main states, who opens it, and what is pressed on it."""

from collections.abc import Callable
from dataclasses import dataclass

import busy
import governance
import judging
import standings
import story
from playwright.sync_api import Page

from agentapp import live
from agentapp.demo.accounts import PASSWORD


@dataclass(frozen=True)
class Picture:
    """One page in one state. `path` is formatted with the story's keys; `then` brings the page into the state."""

    name: str
    title: str
    path: str
    person: str = "dana"
    then: Callable[[Page], None] | None = None
    # Holds while the picture is taken, at every size.
    during: story.Moment | None = None
    # The main pages are also taken dark.
    main: bool = False
    # Taken before any account exists.
    empty: bool = False


# --- What is pressed ---------------------------------------------------------------------------


def press(*keys: str) -> Callable[[Page], None]:
    def then(page: Page) -> None:
        page.wait_for_timeout(450)  # keys rest for 400 ms after a page is shown
        for key in keys:
            page.keyboard.press(key)
        page.wait_for_timeout(300)

    return then


def open_decision(page: Page) -> None:
    page.locator("tbody tr", has_text="Rejected").first.locator(".rowlink").click()
    page.locator("tr.detail").wait_for()
    page.wait_for_timeout(300)


def open_judged(page: Page) -> None:
    page.locator("tbody tr .rowlink").first.click()
    page.locator("tr.detail").wait_for()
    page.locator("tr.detail .judge summary").click()
    page.wait_for_timeout(300)


def scroll_to(selector: str) -> Callable[[Page], None]:
    def then(page: Page) -> None:
        page.locator(selector).scroll_into_view_if_needed()
        page.wait_for_timeout(300)

    return then


def click(name: str) -> Callable[[Page], None]:
    def then(page: Page) -> None:
        page.get_by_role("button", name=name).first.click()
        page.wait_for_timeout(300)

    return then


def search_refund(page: Page) -> None:
    press("Control+k")(page)
    page.keyboard.type("ref")
    page.locator(".pal-i", has_text="Refund").first.wait_for()


def is_live(page: Page) -> None:
    """If the page has a stream, wait until it is connected."""
    if page.locator("[data-live-words]").count():
        page.locator("[data-live-words]", has_text="Live").first.wait_for(state="attached")


def sign_in(name: str, password: str = PASSWORD) -> Callable[[Page], None]:
    def then(page: Page) -> None:
        page.get_by_label("Name").fill(name)
        page.get_by_label("Password").fill(password)
        page.get_by_role("button", name="Sign in with password").click()
        page.wait_for_load_state()
        is_live(page)

    return then


def renew(page: Page) -> None:
    """Confirm who one is, if a page asks for it. That counts for five minutes, so it is asked once."""
    if page.get_by_role("button", name="Use password").count():
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Use password").click()
        page.wait_for_load_state()
        is_live(page)


def make_token(page: Page) -> None:
    renew(page)
    page.get_by_label("Name").fill("export")
    page.get_by_label("runs:read").check()
    page.get_by_role("button", name="Create token").click()
    page.locator("#secret").wait_for()


def choose_poorly(page: Page) -> None:
    page.get_by_label("New password", exact=True).fill("password")
    page.get_by_label("New password again").fill("else")
    click("Set the password")(page)


def reject_wordlessly(page: Page) -> None:
    press("r")(page)
    page.locator("#reject-dialog form").evaluate("form => { form.noValidate = true; }")
    page.locator("#reject-dialog").get_by_role("button", name="Reject").click()
    page.locator("#reject-dialog [role=alert]").wait_for()
    is_live(page)


def edit_too_far(page: Page) -> None:
    page.get_by_role("textbox", name="Amount").fill("99999999")
    page.get_by_role("textbox", name="Amount").blur()
    page.wait_for_timeout(900)


def pick_two(page: Page) -> None:
    if page.get_by_text("Select", exact=True).is_visible():
        page.get_by_text("Select", exact=True).click()
    for row in page.locator("#queue li", has_text="store credit").all()[:2]:
        row.locator("[name=pick]").check(force=True)
    page.get_by_text("2 selected").wait_for()


def begin(page: Page) -> None:
    """Begin once; after that it goes on by itself."""
    if page.get_by_role("button", name="Begin").count():
        page.get_by_role("button", name="Begin").click()
    page.locator("#focus[data-next]").wait_for()
    is_live(page)
    page.wait_for_timeout(300)


def decide_together(page: Page) -> None:
    """Decide once; after that, look at the result again."""
    if page.get_by_role("button", name="Approve 2").count():
        page.get_by_role("button", name="Approve 2").click()
    else:
        page.goto("/inbox/batch/done/")
    page.get_by_role("heading", name="2 of 2 approved").wait_for()


def lose_the_network(page: Page) -> None:
    page.context.set_offline(True)
    live.close_streams()
    page.locator("[data-live-words]", has_text="Offline").first.wait_for(state="attached")


def lose_the_stream(page: Page) -> None:
    page.route("**/live/**", lambda route: route.abort())
    live.close_streams()
    page.locator("[data-live-words]", has_text="Reconnecting").first.wait_for(state="attached")


def lose_a_part(page: Page) -> None:
    page.route("**/inbox/filters/**", lambda route: route.fulfill(status=502, body=""))
    page.get_by_role("link", name="Filter").click()
    page.locator("[data-failed]").first.wait_for()


def hear(event: str) -> Callable[[Page], None]:
    """Act as if the stream had sent this event."""

    def then(page: Page) -> None:
        page.evaluate(f"document.dispatchEvent(new CustomEvent('{event}', {{detail: {{data: 'newer'}}}}))")
        page.wait_for_timeout(500)

    return then


WHAT_MATTERS = "/audit/?q=did:decided,claimed,asked,failed,took-over"


def follow(name: str, shows: str) -> Callable[[Page], None]:
    """Click a link that loads a part into the page."""

    def then(page: Page) -> None:
        page.get_by_role("link", name=name, exact=True).click()
        page.locator(shows).wait_for()

    return then


def rehearse(page: Page) -> None:
    page.locator("[name='arg.order_id']").fill("58213")
    page.locator("[name='arg.amount']").fill("214.50")
    reason = page.locator("select[name='arg.reason']")
    if reason.count():
        reason.select_option(index=1)
    else:
        page.locator("label:has([name='arg.reason'])").first.click()
    page.locator("[name='arg.message']").fill("Hi Ana, the money is on its way back to your card.")
    page.get_by_role("button", name="Dry run").click()
    page.locator("#verdict[data-fresh]").wait_for()


def open_change(page: Page) -> None:
    page.locator(".change summary", has_text="Changed").first.click()
    page.locator(".change-fields").first.wait_for()


SOURCES, BREAKERS = "/admin/agentapp/toolsource", "/admin/agentapp/breaker"

# --- The pages ---------------------------------------------------------------------------------

PICTURES = (
    Picture("setup", "An empty installation", "/setup/?token={token}", person="", main=True, empty=True),
    Picture("setup-token", "An empty installation, without its link", "/setup/", person="", empty=True),
    Picture("signin", "Sign in", "/login/", person="", main=True),
    Picture("signin-wrong", "Sign in: a wrong password", "/login/", person="", then=sign_in("marco", "wrong")),
    Picture("signin-second", "Sign in: the second step", "/login/", person="", then=sign_in("marco"), main=True),
    Picture("signin-refused", "Sign in: no answer from a provider", "/login/sso/northwind/", person=""),
    Picture("reset", "A new password by mail", "/login/reset/", person=""),
    Picture("reset-asked", "A new password: what was sent", "/login/reset/asked/", person=""),
    Picture("reset-new", "A new password: choosing it", "{reset}", person="", during=story.forgotten, main=True),
    Picture("reset-poor", "A new password: a weak one", "{reset}", "", choose_poorly, during=story.forgotten),
    Picture("reset-refused", "A new password: a link that no longer works", "/login/reset/1-used-up/", person=""),
    Picture("reauthenticate", "Showing again who you are", "/reauthenticate/?next=/settings/", "marco", main=True),
    Picture("signed-in", "Signed in again in another tab", "/signed-in/"),
    Picture("inbox", "Inbox", "/inbox/?id={refund}", main=True),
    Picture("inbox-mine", "Inbox: nothing claimed", "/inbox/?view=mine"),
    Picture("inbox-decided", "Inbox: decided", "/inbox/?view=decided"),
    Picture("inbox-nothing", "Inbox: a filter that finds nothing", "/inbox/?q=nothing&risk=low"),
    Picture("inbox-filters", "Inbox: filters", "/inbox/filters/?risk=high"),
    Picture("inbox-views", "Inbox: saved views", "/inbox/views/?risk=high"),
    Picture("inbox-keys", "The keys of a page", "/inbox/", then=press("?")),
    Picture("inbox-storm", "Inbox: more than anyone can read", "/inbox/", "ada", during=story.storm),
    Picture("inbox-offline", "Inbox: without a network", "/inbox/", then=lose_the_network),
    Picture("inbox-stale", "Inbox: not live", "/inbox/", then=lose_the_stream),
    Picture("inbox-part", "Inbox: a part that could not be loaded", "/inbox/", then=lose_a_part),
    Picture("inbox-signed-out", "Inbox: the session has ended", "/inbox/", then=hear("session.expired")),
    Picture("inbox-newer", "Inbox: a newer version is here", "/inbox/", then=hear("deploy")),
    Picture("inbox-unknown", "Inbox: a call with an unknown outcome", "/inbox/", during=story.unknown),
    Picture("outcome", "A call with an unknown outcome", "/outcomes/{unknown}/", during=story.unknown),
    Picture("inbox-picked", "Inbox: two selected", "/inbox/", then=pick_two),
    Picture("batch", "Deciding two together", "/inbox/batch/?pick={credit}&pick={other_credit}"),
    Picture("batch-refused", "Two that cannot be decided together", "/inbox/batch/?pick={refund}&pick={address}"),
    Picture("focus", "Focus mode", "/inbox/focus/", main=True),
    Picture("focus-one", "Focus mode: a request", "/inbox/focus/", "dana", begin, story.claiming, True),
    Picture("approval", "A request", "/approvals/{refund}/", main=True),
    Picture("approval-edit", "A request: an edit that does not fit", "/approvals/{refund}/", then=edit_too_far),
    Picture("approval-reject", "A request: rejecting", "/approvals/{refund}/", then=press("r")),
    Picture("approval-wordless", "A request: rejecting without a word", "/approvals/{refund}/", then=reject_wordlessly),
    Picture("approval-ask", "A request: asking the agent", "/approvals/{refund}/?do=ask"),
    Picture("approval-respond", "A request: answering in the tool's place", "/approvals/{refund}/?do=respond"),
    Picture("approval-diff", "A request: what an edit changes", "/approvals/{refund}/?view=diff"),
    Picture("approval-json", "A request as JSON", "/approvals/{refund}/?view=json"),
    Picture("approval-critical", "A critical request: approving", "/approvals/{critical}/", then=press("a")),
    Picture("approval-half", "A critical request: one of two", "/approvals/{critical}/", during=story.half_approved),
    Picture("approval-own", "A request from your own run", "/approvals/{refund}/", person="sam"),
    Picture("approval-customer", "A request that its customer answers", "/approvals/{returning}/"),
    Picture("approval-injected", "A request with words from outside", "/approvals/{injected}/"),
    Picture("approval-asked", "A request: the agent was asked", "/approvals/{asked}/"),
    Picture("approval-held", "A request: approved, with undo possible", "/approvals/{held}/", during=story.holding),
    Picture("approval-done", "A request: carried out", "/approvals/{done}/"),
    Picture("approval-rejected", "A request: rejected", "/approvals/{rejected}/", person="marco"),
    Picture("hand-over", "Handing a request over", "/approvals/{refund}/hand-over/"),
    Picture("snooze", "Snoozing a request", "/approvals/{refund}/snooze/"),
    Picture("runs", "Runs", "/runs/", person="mia", main=True),
    Picture("runs-waiting", "Runs that wait", "/runs/?state=waiting", person="mia"),
    Picture("runs-nothing", "Runs: a filter that finds nothing", "/runs/?agent=concierge&state=failed", "mia"),
    Picture("run", "A run", "/runs/{waiting_run}/?step=3&call=0", main=True),
    Picture("run-done", "A run that has ended", "/runs/{done_run}/", person="sam"),
    Picture("run-failed", "A run that has failed", "/runs/{failed_run}/", person="sam"),
    Picture("run-paused", "A run that is paused", "/runs/{waiting_run}/", person="sam", during=story.paused),
    Picture("run-messages", "A run: what the model was sent", "/runs/{done_run}/?step=2&tab=messages", person="mia"),
    Picture("run-costs", "A run: costs", "/runs/{done_run}/?view=costs", person="mia"),
    Picture("run-conversation", "A run: conversation", "/runs/{done_run}/?view=conversation", person="mia"),
    Picture("run-events", "A run: events", "/runs/{done_run}/?view=events", person="mia"),
    Picture("run-find", "A run: finding in the trace", "/runs/{done_run}/?q=58213", person="mia"),
    Picture("run-guided", "A run by guidelines", "/runs/{guided_run}/?step=1", person="mia", main=True),
    Picture("run-cancel", "Cancelling a run", "/runs/{waiting_run}/cancel/", person="sam"),
    Picture("run-new", "Starting a run", "/runs/new/", person="sam"),
    Picture("run-new-forbidden", "Starting a run: not open to everybody", "/runs/new/", person="mia"),
    Picture("chat", "Talking with an agent", "/runs/{waiting_run}/chat/", person="sam", main=True),
    Picture("chat-taken", "Talking: taken over by a person", "/runs/{taken_run}/chat/", person="dana"),
    Picture("links", "Links for a customer", "/runs/{taken_run}/chat/links/", person="sam"),
    Picture("links-made", "Links for a customer: a new link", "/runs/{guided_run}/chat/links/", "sam", click("Make")),
    Picture("customer", "The customer's own page", "{customer}", person="", main=True),
    Picture("customer-asked", "The customer's own page: confirming", "{confirming}", person="", main=True),
    Picture("customer-gone", "The customer's own page: a link that opens nothing", "/talk/made-up/", person=""),
    Picture("palette", "Search or jump to", "/runs/", then=search_refund),
    Picture("search", "Search without script", "/search/?q=refund"),
    Picture("audit", "Audit trail", WHAT_MATTERS, "mia", open_decision, main=True),
    Picture("audit-decisions", "Audit trail: decisions", "/audit/?q=did:decided", "mia"),
    Picture("audit-nothing", "Audit trail: a line that finds nothing", "/audit/?q=did:expired%20who:dana", "mia"),
    Picture("audit-wrong", "Audit trail: a line that is not understood", "/audit/?q=tol:refund_payment", "mia"),
    Picture("audit-choices", "Audit trail: what a chip offers", "/audit/choices/did/?q=since:7d", "mia"),
    Picture("audit-views", "Audit trail: views", "/audit/views/?q=did:decided%20risk:high", "mia"),
    Picture("audit-event", "One event of the audit trail", "/audit/events/{decision_event}/", "mia"),
    Picture("as-seen", "A request as its approver saw it", "/audit/approvals/{done}/as-seen/", "mia", main=True),
    Picture("audit-proof", "What proves the record", "/audit/proof/", "ada", main=True),
    Picture("audit-verifying", "The chain is being checked", "/audit/proof/", "ada", during=standings.verifying),
    Picture("audit-broken", "The chain is broken", "/audit/", "ada", during=standings.broken, main=True),
    Picture("audit-proof-broken", "What proves the record, when it is broken", "/audit/proof/", "ada",
            during=standings.broken),
    Picture("audit-forbidden", "Audit trail: not open to everybody", "/audit/", "dana"),
    Picture("switches", "Kill switches and breakers", "/switches/", "ada"),
    Picture("switches-engaged", "Kill switches and breakers: stopped", "/switches/", "ada", None, story.stopped, True),
    Picture("insights", "Insights: approvals", "/insights/", "mia", during=busy.weeks, main=True),
    Picture("insights-cost", "Insights: cost", "/insights/cost/", "mia", during=busy.weeks, main=True),
    Picture("insights-reliability", "Insights: reliability", "/insights/reliability/", "mia", during=busy.weeks),
    Picture("insights-new", "Insights: hardly anything yet", "/insights/?range=24h", "mia"),
    Picture("settings", "Settings: profile", "/settings/"),
    Picture("settings-notifications", "Settings: notifications", "/settings/notifications/"),
    Picture("settings-appearance", "Settings: appearance", "/settings/appearance/"),
    Picture("settings-keys", "Settings: keys", "/settings/keys/"),
    Picture("settings-security", "Settings: second factors and passkeys", "/settings/security/", "marco", main=True),
    Picture("settings-app", "Settings: setting up an authenticator app", "/settings/security/app/", then=renew),
    Picture("settings-passkey", "Settings: adding a passkey", "/settings/security/passkeys/", then=renew),
    Picture("settings-codes", "Settings: recovery codes", "/settings/security/codes/", "marco", renew),
    Picture("settings-sessions", "Settings: sessions", "/login/?next=/settings/sessions/", "", sign_in("dana")),
    Picture("settings-tokens", "Settings: API tokens", "/settings/tokens/"),
    Picture("settings-token", "Settings: a new API token", "/settings/tokens/new/", then=make_token),
    Picture("settings-absence", "Settings: while away", "/settings/absence/"),
    Picture("settings-away", "Settings: away now", "/settings/absence/", during=story.away),
    Picture("forbidden", "A page that needs a right you lack", "/switches/", person="sam"),
    Picture("not-found", "A page that does not exist", "/nowhere/"),
    Picture("broken", "A page that failed", "/inbox/views/", during=story.failing),
    Picture("admin", "Admin", "/admin/", person="ada", main=True),
    Picture("admin-tools", "Admin: tools", "/admin/agentapp/tool/", person="ada"),
    Picture("admin-tool", "Admin: a tool", "/admin/agentapp/tool/{tool}/change/", person="ada", main=True),
    Picture("admin-contract", "Admin: a changed tool", "/admin/agentapp/tool/{changed_tool}/change/", person="ada"),
    Picture("admin-rules", "Admin: rules", "/admin/approvals/rule/", person="ada"),
    Picture("admin-rule", "Admin: a rule", "/admin/approvals/rule/{rule}/change/", person="ada"),
    Picture("admin-agent", "Admin: an agent", "/admin/agentapp/agent/{agent}/change/", person="ada"),
    Picture("admin-guidelines", "Admin: guidelines", "/admin/agentapp/guideline/", person="ada"),
    Picture("admin-guideline", "Admin: a guideline", "/admin/agentapp/guideline/{guideline}/change/", "ada", main=True),
    Picture("admin-sources", "Admin: where tools come from", f"{SOURCES}/", person="ada", main=True),
    Picture("admin-server", "Admin: an MCP server", SOURCES + "/{server}/change/", person="ada"),
    Picture("admin-mcp", "Admin: a new MCP server", f"{SOURCES}/new-mcp-server/", "ada", click("Add it")),
    Picture("admin-document", "Admin: a document to import", f"{SOURCES}/import/", person="ada"),
    Picture("admin-import", "Admin: picking from a document", SOURCES + "/import/{import}/", "ada", main=True),
    Picture("admin-breaker", "Admin: a breaker", BREAKERS + "/{breaker}/change/", "ada", during=story.stopped),
    Picture("admin-people", "Admin: people", "/admin/auth/user/", person="ada"),
    Picture("admin-person", "Admin: a person", "/admin/auth/user/{person}/change/", person="ada"),
    Picture("admin-run", "Admin: a run", "/admin/agentapp/run/{done_run}/change/", person="ada"),
    Picture("admin-events", "Admin: the ledger", "/admin/approvals/event/", person="ada"),
    Picture("admin-delete", "Admin: deleting a rule", "/admin/approvals/rule/{rule}/delete/", person="ada"),
    Picture("admin-versions", "Admin: a draft of a rule", "/admin/approvals/rule/{rule}/versions/", "ada",
            during=governance.drafted, main=True),
    Picture("admin-webhooks", "Admin: webhook endpoints", "/admin/agentapp/webhookendpoint/", "ada",
            during=governance.told),
    Picture("admin-webhook", "Admin: a webhook endpoint", "/admin/agentapp/webhookendpoint/{endpoint}/change/", "ada",
            during=governance.told),
    Picture("admin-delivery", "Admin: a delivery", "/admin/agentapp/webhookdelivery/{delivery}/change/", "ada",
            during=governance.told),
    Picture("run-escalated", "A run whose request went to a second group", "{escalation_2}", "ada",
            during=governance.escalated),
    Picture("approval-quorum", "A request: one of two has approved", "{quorum_0}", during=governance.toured("quorum")),
    Picture("approval-edited", "A request: the first of two has changed it", "/approvals/{edited}/",
            during=governance.edited),
    Picture("approval-lent", "A request: deciding for somebody", "{totals_1}", during=governance.lent_total),
    Picture("approval-commented", "A request: comments", "/approvals/{commented}/", during=governance.commented,
            then=scroll_to("#comments")),
    Picture("approval-doubted", "A request: a second look", "/approvals/{doubted}/", during=governance.doubted),
    Picture("approval-disguised", "A request: texts that are not what they look like", "/approvals/{disguised}/",
            during=governance.disguised, main=True),
    Picture("approval-plan", "A request: a plan of several calls", "{plan_0}", during=governance.toured("plan"),
            main=True),
    Picture("approval-sign", "A request: approving by signing", "/approvals/{to_sign}/?do=approve",
            during=governance.to_sign),
    Picture("approval-expired", "A request: nobody decided in time", "/approvals/{expired}/", "sam",
            during=governance.expired),
    Picture("approval-outside", "A request: values from outside", "{outside_account_0}",
            during=governance.toured("outside-account"), main=True),
    Picture("approval-stale", "A request: the world has changed", "{stale_world_0}",
            during=governance.toured("stale-world"), main=True),
    Picture("approval-superseded", "A request: set aside", "{stale_world_1}", "ada",
            during=governance.toured("stale-world")),
    Picture("approval-again", "A request: another proposal as the answer", "{ask_0}",
            during=governance.toured("ask"), main=True),
    Picture("approval-total", "A request: a rule that counts", "{totals_1}", "nora",
            during=governance.toured("totals")),
    Picture("evals", "Evals", "/evals/", "ada", during=judging.evals, main=True),
    Picture("eval-suite", "A suite of evals", "/evals/{suite}/", "ada", during=judging.evals, main=True),
    Picture("eval-run", "The results of an eval", "/evals/runs/{eval}/", "ada", during=judging.evals, main=True),
    Picture("eval-compare", "Two evals side by side", "/evals/runs/{eval}/compare/{base}/", "ada",
            during=judging.evals, main=True),
    Picture("eval-case", "A case of an eval", "/evals/{suite}/cases/{case}/", "ada", during=judging.evals),
    Picture("approval-judged", "A request: its decision was judged", "/approvals/{judged}/", "ada",
            scroll_to("#judged"), judging.judged, main=True),
    Picture("audit-judged", "Audit trail: decisions that were judged", "/audit/?q=judged:wrong", "mia",
            open_judged, judging.judged),
    Picture("eval-judged", "A suite of judged decisions", "/evals/judged-decisions/", "ada", during=judging.judged),
    Picture("eval-editor", "The case of a judged decision", "/evals/judged-decisions/cases/{judged_case}/", "ada",
            during=judging.judged, main=True),
    Picture("tools", "Tools", "/tools/", "ada", main=True),
    Picture("tool", "A tool", "/tools/refund_payment/", main=True),
    Picture("tool-rules", "A tool: its rules, its latest calls under them", "/tools/refund_payment/?part=rules", "ada",
            then=follow("Look", "#through table")),
    Picture("tool-calls", "A tool: its latest calls", "/tools/refund_payment/?part=calls"),
    Picture("tool-changed", "A tool that its server has changed", "/tools/hold_goods/", "ada"),
    Picture("tool-try", "Trying a tool: a dry run", "/tools/refund_payment/try/", "sam", then=rehearse, main=True),
    Picture("changes", "Changes of the configuration", "/changes/", "mia", then=open_change, main=True),
    Picture("what-if", "What today’s rules would have stopped", "/changes/what-if/?since=30d", "mia",
            during=story.stricter, main=True),
    Picture("grants", "Grants", "/grants/", during=governance.given, main=True),
    Picture("grant", "A grant", "{grant_2}", during=governance.given),
    Picture("grant-new", "Allowing calls like one for a while", "/approvals/{credit}/grant/", main=True),
    Picture("run-granted", "A call that ran under a grant", "{grant_0}", "ada", during=governance.given),
    Picture("undo-call", "Asking for a call to be undone", "/calls/{given}/undo/", during=governance.given),
    Picture("approval-undo", "A request to take something back", "{undo_1}", "nora", during=governance.toured("undo")),
    Picture("run-undone", "A call that somebody asked to undo", "{undo_0}", "ada", during=governance.toured("undo")),
    Picture("settings-delegation", "Settings: delegation", "/settings/delegation/", "nora", during=governance.lent),
    Picture("inbox-unwell", "Inbox: something is down", "/inbox/", "ada", during=governance.unwell),
    Picture("batch-done", "Two decided together", "/inbox/batch/?pick={credit}&pick={other_credit}",
            then=decide_together),
)  # fmt: skip
