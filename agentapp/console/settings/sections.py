"""The sections of a person's settings. Each is a page that saves by itself."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone


@dataclass(frozen=True)
class Section:
    name: str
    title: str
    icon: str

    @property
    def url(self) -> str:
        return "settings" if self.name == "profile" else f"settings_{self.name}"


PROFILE = Section("profile", "Profile and team", "user")
NOTIFICATIONS = Section("notifications", "Notifications", "bell")
KEYS = Section("keys", "Keys", "keyboard")
APPEARANCE = Section("appearance", "Appearance", "theme")
SECURITY = Section("security", "Password and passkeys", "finger")
SESSIONS = Section("sessions", "Sessions", "globe")
TOKENS = Section("tokens", "API tokens", "key")
ABSENCE = Section("absence", "Absence", "clock")
DELEGATION = Section("delegation", "Delegation", "hand")
ALL = (PROFILE, NOTIFICATIONS, KEYS, APPEARANCE, SECURITY, SESSIONS, TOKENS, ABSENCE, DELEGATION)


def page(
    request: HttpRequest, section: Section, context: dict[str, Any], status: HTTPStatus = HTTPStatus.OK
) -> HttpResponse:
    """One section, with links to the others."""
    template = f"console/settings/{section.name}.html"
    return render(request, template, {"sections": ALL, "here": section, **context}, status=status)


def saved(request: HttpRequest, section: Section, what: str = "Saved") -> HttpResponse:
    """Back to the section, which says when it was saved."""
    messages.success(request, f"{what} {timezone.localtime():%H:%M}")
    return redirect(section.url)
