"""The console's pages."""

from django.contrib.auth.decorators import login_not_required
from django.urls import path

from agentapp.console import inbox, shell, signin

urlpatterns = [
    path("", shell.home, name="home"),
    path("login/", login_not_required(signin.SignIn.as_view()), name="login"),
    path("logout/", signin.sign_out, name="logout"),
    path("counts/", shell.counts, name="counts"),
    path("live/", shell.no_stream, name="live"),
    path("inbox/", inbox.inbox, name="inbox"),
]
