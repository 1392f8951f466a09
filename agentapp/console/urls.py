"""The console's pages."""

from django.contrib.auth.decorators import login_not_required
from django.urls import path

from agentapp.console import inbox, run, runs, shell, signin, start

urlpatterns = [
    path("", shell.home, name="home"),
    path("login/", login_not_required(signin.SignIn.as_view()), name="login"),
    path("logout/", signin.sign_out, name="logout"),
    path("counts/", shell.counts, name="counts"),
    path("live/", shell.no_stream, name="live"),
    path("inbox/", inbox.inbox, name="inbox"),
    path("runs/", runs.runs, name="runs"),
    path("runs/new/", start.run_new, name="run_new"),
    path("runs/new/parts/", start.run_new_parts, name="run_new_parts"),
    path("runs/<uuid:run_id>/", run.run, name="run"),
    path("runs/<uuid:run_id>/cancel/", run.run_cancel, name="run_cancel"),
    path("runs/<uuid:run_id>/<int:step>/<int:call>/<slug:part>.json", run.run_json, name="run_json"),
]
