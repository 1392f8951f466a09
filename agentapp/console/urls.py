"""The console's pages."""

from django.contrib.auth.decorators import login_not_required
from django.urls import path

from agentapp.console import approval, controls, inbox, outcome, run, run_control, runs, shell, signin, start

urlpatterns = [
    path("", shell.home, name="home"),
    path("login/", login_not_required(signin.SignIn.as_view()), name="login"),
    path("logout/", signin.sign_out, name="logout"),
    path("counts/", shell.counts, name="counts"),
    path("live/", shell.no_stream, name="live"),
    path("inbox/", inbox.inbox, name="inbox"),
    path("inbox/rows/", inbox.rows, name="inbox_rows"),
    path("inbox/peek/<uuid:approval_id>/", inbox.peek, name="peek"),
    path("inbox/outcome/<uuid:execution_id>/", inbox.peek_outcome, name="peek_outcome"),
    path("approvals/<uuid:approval_id>/", approval.approval, name="approval"),
    path("approvals/<uuid:approval_id>/state/", approval.state, name="approval_state"),
    path("approvals/<uuid:approval_id>/side/", approval.side, name="approval_side"),
    path("approvals/<uuid:approval_id>/draft/", approval.draft, name="draft"),
    path("approvals/<uuid:approval_id>/decide/", approval.decide, name="decide"),
    path("approvals/<uuid:approval_id>/undo/", approval.undo, name="undo"),
    path("outcomes/<uuid:execution_id>/", outcome.resolve, name="outcome"),
    path("switches/", controls.controls, name="switches"),
    path("switches/<uuid:switch_id>/release/", controls.release, name="switch_release"),
    path("switches/breakers/<uuid:breaker_id>/reset/", controls.reset, name="breaker_reset"),
    path("runs/", runs.runs, name="runs"),
    path("runs/new/", start.run_new, name="run_new"),
    path("runs/new/parts/", start.run_new_parts, name="run_new_parts"),
    path("runs/<uuid:run_id>/", run.run, name="run"),
    path("runs/<uuid:run_id>/cancel/", run.run_cancel, name="run_cancel"),
    path("runs/<uuid:run_id>/pause/", run_control.run_pause, name="run_pause"),
    path("runs/<uuid:run_id>/resume/", run_control.run_resume, name="run_resume"),
    path("runs/<uuid:run_id>/budget/", run_control.run_budget, name="run_budget"),
    path("runs/<uuid:run_id>/<int:step>/<int:call>/<slug:part>.json", run.run_json, name="run_json"),
]
