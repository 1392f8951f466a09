"""What somebody who is not signed in is answered, so that nothing typed is lost and no page shows another."""

from collections.abc import Callable
from typing import Any

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from agentapp.console.problems import Problem, page_of


class SignedOutMiddleware(LoginRequiredMiddleware):
    """Sends to sign-in whoever opens a page; a part of a page gets 401, and whoever posted returns to their page."""

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
