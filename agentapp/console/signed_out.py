"""What people who are not signed in get, so that nothing typed is lost and no page shows up inside another."""

from collections.abc import Callable
from typing import Any

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from agentapp.console.problems import Problem, page_of


class SignedOutMiddleware(LoginRequiredMiddleware):
    """A page leads to sign-in, a part of a page gets 401, and a post leads back to its page after sign-in."""

    def process_view(
        self, request: HttpRequest, view_func: Callable[..., Any], view_args: Any, view_kwargs: Any
    ) -> HttpResponseBase | None:
        refused = super().process_view(request, view_func, view_args, view_kwargs)
        if refused is None:
            return None
        if request.headers.get("HX-Request"):
            problem = Problem("You are signed out.", "Nothing was sent or changed. Sign in again to go on.")
            return render(request, "console/_failed.html", {"problem": problem}, status=401)
        if request.method not in ("GET", "HEAD"):
            return redirect_to_login(page_of(request), self.get_login_url(view_func))
        return refused
