from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.template import Context, Template
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentapp.console import formats
from agentapp.models import Preferences
from approvals.models import Approval, Claim


@pytest.mark.django_db
class TestPages:
    def test_every_page_carries_the_strict_policy(self, client: Client, dana: User) -> None:
        client.force_login(dana)

        for path in ("/login/", "/inbox/"):
            policy = Client().get(path) if path == "/login/" else client.get(path)
            assert "default-src 'none'" in policy["Content-Security-Policy"]
            assert "unsafe" not in policy["Content-Security-Policy"]

    def test_an_approver_starts_with_the_inbox(self, client: Client, dana: User) -> None:
        client.force_login(dana)

        assert client.get("/")["Location"] == "/inbox/"

    def test_a_page_is_offered_only_to_those_who_may_open_it(self, client: Client, dana: User, mia: User) -> None:
        client.force_login(dana)
        assert "/switches/" not in client.get("/runs/").content.decode()
        client.force_login(mia)
        assert 'href="/switches/"' in client.get("/runs/").content.decode()

    def test_a_phone_has_four_tabs_at_most_and_the_other_pages_behind_more(
        self, client: Client, dana: User, ada: User
    ) -> None:
        for user, number, tab, behind in ((dana, 3, "Tools", "Settings"), (ada, 4, "Insights", "Controls")):
            client.force_login(user)
            bar = client.get("/runs/").content.decode().partition('aria-label="Main, phone"')[2]
            shown, _, more = bar.partition("<details")
            assert shown.count("<a ") == number
            assert tab in shown
            assert behind in more.partition("</details>")[0]

    def test_the_admin_is_offered_to_staff_alone(self, client: Client, dana: User, ada: User) -> None:
        client.force_login(dana)
        assert "/admin/" not in client.get("/inbox/").content.decode()
        client.force_login(ada)
        assert 'href="/admin/"' in client.get("/inbox/").content.decode()

    def test_the_frame_costs_one_query_beside_the_person_and_their_rights(self, client: Client, dana: User) -> None:
        client.force_login(dana)

        with CaptureQueriesContext(connection) as captured:
            client.get("/counts/")

        assert len(captured) <= 5

    def test_what_a_person_has_set_is_on_every_page(self, client: Client, dana: User) -> None:
        client.force_login(dana)
        plain = client.get("/runs/").content.decode()
        Preferences.objects.create(user=dana, theme="dark", density="dense", single_keys=False)
        chosen = client.get("/runs/").content.decode()

        assert '<html lang="en">' in plain
        assert 'data-density="roomy"' in plain
        assert "data-single-keys" not in plain
        assert '<html lang="en" data-theme="dark">' in chosen
        assert '<meta name="color-scheme" content="dark">' in chosen
        assert 'data-density="dense" data-single-keys="off"' in chosen

    def test_the_figures_count_what_waits_what_is_mine_and_what_is_due(
        self, client: Client, waiting: Callable[..., Approval], dana: User, marco: User
    ) -> None:
        soon, later, other = waiting(expires_seconds=200), waiting(expires_seconds=4000), waiting(expires_seconds=4000)
        now = timezone.now()
        Claim.objects.create(approval=soon, user=dana, until=now + timedelta(minutes=5), claimed_at=now)
        Claim.objects.create(approval=later, user=dana, until=now - timedelta(seconds=1), claimed_at=now)
        Claim.objects.create(approval=other, user=marco, until=now + timedelta(minutes=5), claimed_at=now)
        client.force_login(dana)

        assert client.get("/counts/").json() == {"waiting": 3, "mine": 1, "due": 1}
        assert 'href="/static/console/favicon/3-due.svg"' in client.get("/inbox/").content.decode()

    def test_there_is_a_favicon_for_every_figure(self) -> None:
        folder = settings.BASE_DIR / "static" / "console" / "favicon"

        wanted = {"0.svg", *(f"{number}{due}.svg" for number in range(1, 11) for due in ("", "-due"))}
        assert {path.name for path in folder.iterdir()} == wanted

    def test_the_session_says_who_is_signed_in_and_never_redirects(self, client: Client, dana: User) -> None:
        assert client.get("/session/").json() == {"user": ""}
        client.force_login(dana)
        said = client.get("/session/")

        assert said.json()["user"] == str(dana.pk)
        assert said.json()["token"]
        assert "no-store" in said["Cache-Control"]

    def test_probes_answer_without_signing_in(self, client: Client) -> None:
        assert client.get("/healthz/").content == b"ok"
        assert client.get("/readyz/").status_code == 200

    def test_the_stream_is_not_answered_by_django(self, client: Client) -> None:
        assert client.get("/live/").status_code == 503


class TestText:
    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("plain\ttext\nhere", "plain\ttext\nhere"),
            ("\u202eevil", "⟨U+202E⟩evil"),
            ("a\u200bb", "a⟨U+200B⟩b"),
            ("a\u200db", "a⟨U+200D⟩b"),
            ("\x1b[31m", "⟨U+001B⟩[31m"),
            ("line\u2028end", "line⟨U+2028⟩end"),
            ("\ufeff\u2066x\u2069", "⟨U+FEFF⟩⟨U+2066⟩x⟨U+2069⟩"),
            ("a\rb", "a⟨U+000D⟩b"),
            ("tag\U000e0041", "tag⟨U+E0041⟩"),
            ("e" + "\u0301" * 6, "e" + "\u0301" * 4 + "⟨U+0301⟩" * 2),
            ("👩\u200d💻 नमस्\u200dते", "👩\u200d💻 नमस्\u200dते"),
        ],
    )
    def test_hidden_characters_become_visible(self, text: str, shown: str) -> None:
        assert formats.visible(text) == shown

    def test_visible_text_is_still_escaped(self) -> None:
        rendered = Template("{% load console %}{{ text|visible }}").render(Context({"text": "<b>\u202e</b>"}))

        assert rendered == "&lt;b&gt;⟨U+202E⟩&lt;/b&gt;"

    @pytest.mark.parametrize(
        ("seconds", "shown"),
        [(0.38, "0.38 s"), (4, "4.0 s"), (45, "45 s"), (372, "6:12"), (10_800, "3 h"), (200_000, "2 d")],
    )
    def test_durations_are_short(self, seconds: float, shown: str) -> None:
        assert formats.duration(seconds) == shown

    @pytest.mark.parametrize(
        ("seconds", "shown"),
        [(-1, "time is up"), (372, "6:12"), (899, "14:59"), (900, "15 min"), (7200, "2 h"), (3 * 86_400, "3 d")],
    )
    def test_time_left_is_exact_when_it_is_short(self, seconds: int, shown: str) -> None:
        now = datetime(2026, 11, 20, tzinfo=UTC)

        assert formats.time_left(now + timedelta(seconds=seconds), now) == shown

    @pytest.mark.parametrize(
        ("value", "shown"),
        [("0.0712", "$0.07"), ("0.0007", "$0.0007"), (1234.5, "$1,234.50"), (None, "—"), ("1e9999999", "1e9999999")],
    )
    def test_money_names_its_currency(self, value: object, shown: str) -> None:
        assert formats.money(value) == shown

    @pytest.mark.parametrize("tag", ["risk 'high' True", "status_glyph 'pending' True", "avatar name", "icon 'flag'"])
    def test_glyphs_need_no_colour_and_no_style(self, tag: str) -> None:
        drawn = Template("{% load console %}{% " + tag + " %}").render(Context({"name": "<b>"}))

        assert "style=" not in drawn
        assert "<b>" not in drawn
        assert ("aria-label=" in drawn) is ("True" in tag)
