"""The frame in a real browser: rail and tab bar, the palette, single keys and working without them, looks."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from agentapp.models import Preferences, Run
from approvals.models import Approval, Decision
from tests.agentapp.console.conftest import make_waiting
from tests.conftest import says
from tests.e2e.conftest import live
from tests.e2e.looks import look

pytestmark = pytest.mark.browser
Browse = Callable[..., Page]
SIZES = [(1440, 900), (900, 800), (390, 844), (320, 640)]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: str(size[0]))
def test_the_frame_is_accessible_at_every_width(
    browse: Browse, complaints: list[str], sam: User, ada: User, size: tuple[int, int]
) -> None:
    make_waiting(sam, expires_seconds=200)
    wrong: dict[str, list[str]] = {}
    page = browse(ada, "/runs/", *size)

    look(page, "runs", wrong)
    expect(page.locator("main")).to_be_focused()
    page.locator("summary:visible", has_text="More" if size[0] < 720 else "Ada Admin").click()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    look(page, "menu", wrong)
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Sign out")).to_be_hidden()
    live(page).keyboard.press("Control+k")
    page.keyboard.type("re")
    expect(page.get_by_role("option", name="refund_payment")).to_be_visible()
    look(page, "palette", wrong)
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys on this page")).to_be_visible()
    look(page, "keys", wrong)
    for name, path in {"search": "/search/?q=refund", "gone": "/nowhere/", "signed-in": "/signed-in/"}.items():
        page.goto(path)
        look(page, name, wrong)

    assert wrong == {}
    assert [text for text in complaints if "404" not in text] == []


# The vertical position of each tab's words.
WORDS_OF_TABS = """() => [...document.querySelectorAll(".tabbar > a, .tabbar > details > summary")].map((tab) => {
  const range = document.createRange();
  range.selectNode([...tab.childNodes].find((node) => node.nodeType === 3 && node.data.trim()));
  return range.getBoundingClientRect().top;
})"""


def test_on_a_phone_the_words_of_the_tabs_stand_on_one_line(browse: Browse, sam: User, ada: User) -> None:
    make_waiting(sam)
    page = browse(ada, "/runs/", 390, 844)
    expect(page.locator(".tabbar [data-waiting]")).to_be_visible()
    assert len(set(page.evaluate(WORDS_OF_TABS))) == 1


def test_on_a_phone_a_short_page_has_one_ground_down_to_the_tabs(browse: Browse, ada: User) -> None:
    page = browse(ada, "/nowhere/", 390, 844)
    panel = page.locator("main").evaluate("panel => getComputedStyle(panel).backgroundColor")
    expect(page.locator("body")).to_have_css("background-color", panel)


def test_the_palette_goes_where_the_arrows_lead(browse: Browse, sam: User, dana: User) -> None:
    approval = make_waiting(sam, title="Refund the kettle")
    page = live(browse(dana, "/runs/"))

    page.get_by_role("link", name="Search", exact=True).click()
    expect(page.get_by_role("combobox")).to_be_focused()
    page.keyboard.type("kettle")
    option = page.get_by_role("option", name="Refund the kettle")
    expect(option).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    expect(option).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")

    page.wait_for_url(f"**/approvals/{approval.pk}/")


def test_what_was_chosen_in_the_palette_stays_chosen_while_the_page_follows(
    browse: Browse, sam: User, dana: User
) -> None:
    approval = make_waiting(sam, risk="low")
    page = live(browse(dana, f"/approvals/{approval.pk}/"))
    page.keyboard.press("Control+k")
    reject = page.get_by_role("option", name="Reject")
    expect(page.get_by_role("option", name="Approve")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#palette-found [role=option]").first).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(reject).to_have_attribute("aria-selected", "true")

    page.evaluate("""() => new Promise((done) => {
        document.addEventListener("htmx:after:swap", () => setTimeout(done), { once: true });
        htmx.trigger("#presence", "load");
    })""")

    expect(reject).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page.locator("#reject-dialog")).to_be_visible()
    assert not Decision.objects.exists()


def test_the_palette_reaches_every_act_where_single_keys_are_off(browse: Browse, sam: User, dana: User) -> None:
    Preferences.objects.create(user=dana, single_keys=False)
    approval = make_waiting(sam, risk="low")
    page = live(browse(dana, f"/approvals/{approval.pk}/"))

    expect(page.locator(".kbd:visible")).to_have_text(["Ctrl", "K"])
    for key in ("a", "r", "?", "g", "r"):
        page.keyboard.press(key)
    assert not Decision.objects.exists()
    expect(page.locator("dialog:modal")).to_have_count(0)
    page.keyboard.press("Control+k")
    offered = page.locator("#palette-acts [role=option]")
    expect(offered.first).to_contain_text("Approve")
    assert {"Edit the arguments", "Back to the list"} <= set(offered.all_inner_texts())
    page.keyboard.type("approve")
    page.keyboard.press("Enter")

    expect(page.get_by_text("Approved. Runs in")).to_be_visible()
    approval.refresh_from_db()
    assert approval.state == Approval.State.APPROVED


def test_closing_the_sheet_of_keys_leaves_decisions_as_they_were(browse: Browse, sam: User, dana: User) -> None:
    approval = make_waiting(sam, risk="low")
    page = live(browse(dana, f"/approvals/{approval.pk}/"))
    page.keyboard.press("?")

    page.get_by_role("dialog", name="Keys on this page").get_by_role("button", name="Close").click()
    expect(page.locator("dialog:modal")).to_have_count(0)
    page.keyboard.press("a")

    expect(page.get_by_text("Approved. Runs in")).to_be_visible()


def test_g_and_a_letter_go_to_a_page_and_never_act(browse: Browse, sam: User, dana: User) -> None:
    make_waiting(sam, risk="low")
    page = live(browse(dana, "/inbox/"))

    page.keyboard.press("g")
    page.keyboard.press("a")
    assert not page.locator(".toast").is_visible()
    page.keyboard.press("g")
    page.keyboard.press("r")

    page.wait_for_url("**/runs/")
    assert not Decision.objects.exists()


@pytest.mark.parametrize(
    "press",
    ["Shift+a", "Control+a", "Alt+a", "Meta+a"],
)
def test_a_key_with_a_modifier_decides_nothing(browse: Browse, sam: User, dana: User, press: str) -> None:
    approval = make_waiting(sam, risk="low")
    page = live(browse(dana, f"/approvals/{approval.pk}/"))

    page.keyboard.press(press)
    page.evaluate(
        """() => {
          for (const more of [{ repeat: true }, { isComposing: true }])
            document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "a", bubbles: true, ...more }));
        }"""
    )

    page.wait_for_timeout(300)
    assert not Decision.objects.exists()


def test_keys_go_by_the_letter_and_not_by_its_place(browse: Browse, sam: User, dana: User) -> None:
    """On a French keyboard, A is where Q is elsewhere."""
    approval = make_waiting(sam, risk="low")
    page = live(browse(dana, f"/approvals/{approval.pk}/"))

    page.evaluate(
        "document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'a', code: 'KeyQ', bubbles: true }))"
    )

    expect(page.get_by_text("Approved. Runs in")).to_be_visible()


def test_a_chosen_theme_wins_over_the_system(browse: Browse, dana: User) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    page = browse(dana, "/runs/", color_scheme="light")
    light = page.evaluate(colour)
    Preferences.objects.create(user=dana, theme="dark", density="dense")
    page.reload()
    dark = page.evaluate(colour)
    page.emulate_media(color_scheme="dark")

    assert light != dark
    assert page.evaluate(colour) == dark


def test_rows_are_as_high_as_the_density_says(browse: Browse, clerk, dana: User) -> None:  # type: ignore[no-untyped-def]
    clerk.start(says("Done."))
    page = browse(dana, "/runs/")
    height = "document.querySelector('.table tbody tr').getBoundingClientRect().height"
    roomy = page.evaluate(height)
    Preferences.objects.create(user=dana, density="dense")
    page.reload()

    assert (round(roomy), round(page.evaluate(height))) == (48, 40)


def test_without_script_one_searches_and_signs_out(browse: Browse, sam: User, dana: User) -> None:
    make_waiting(sam, title="Refund the kettle")
    page = browse(dana, "/runs/", java_script_enabled=False)

    page.get_by_role("link", name="Search", exact=True).click()
    page.get_by_role("searchbox").fill("kettle")
    page.locator("main").get_by_role("button", name="Search").click()
    expect(page.locator("main").get_by_role("link", name="Refund the kettle")).to_be_visible()
    page.locator("summary", has_text="Dana Whitfield").click()
    page.get_by_role("button", name="Sign out").click()

    page.wait_for_url("**/login/")


def test_a_page_with_a_decision_to_take_has_its_bar_where_the_tabs_are(browse: Browse, sam: User, dana: User) -> None:
    approval = make_waiting(sam)
    page = browse(dana, f"/approvals/{approval.pk}/", 390, 844, is_mobile=True)

    expect(page.get_by_role("button", name="Approve")).to_be_in_viewport()
    expect(page.locator(".tabbar")).to_be_hidden()
    page.goto("/inbox/")
    expect(page.locator(".tabbar")).to_be_in_viewport()


def test_a_page_without_script_does_not_say_that_it_is_live(browse: Browse, sam: User, dana: User) -> None:
    page = browse(dana, "/inbox/", java_script_enabled=False)

    expect(page.locator("[data-live-words]:visible").first).to_have_text("Not live")
    expect(page.get_by_text("Connecting")).to_have_count(0)


def test_a_toast_with_nothing_to_press_leaves_unless_somebody_is_at_it(browse: Browse, sam: User, mia: User) -> None:
    run = Run.objects.get(pk=make_waiting(sam).run_id)
    page = live(browse(mia, f"/runs/{run.pk}/"))
    page.locator("[action$='/pause/'] button:visible").first.click()
    toast = page.locator(".toasts[role=status] .toast")
    expect(toast).to_be_visible()
    [leaving] = toast.evaluate("e => e.getAnimations().map(a => a.effect.getTiming().delay)")
    assert leaving == 8000

    toast.hover()
    assert toast.evaluate("e => e.getAnimations()[0].playState") == "paused"
    page.mouse.move(0, 0)
    toast.evaluate("e => e.getAnimations()[0].finish()")
    expect(toast).to_be_hidden()


def test_the_tab_one_is_on_is_in_sight_on_a_phone(browse: Browse, sam: User, dana: User) -> None:
    page = browse(dana, "/settings/absence/", 390, 844)
    expect(page.locator(".sections [aria-current]")).to_be_in_viewport(ratio=1)
    page.goto("/inbox/?view=decided")
    # Some browsers scroll by whole pixels, and tabs have fractional positions.
    expect(page.locator("#tabs [aria-current]")).to_be_in_viewport(ratio=0.99)
