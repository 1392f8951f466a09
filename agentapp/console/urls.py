"""The console's pages."""

from django.contrib.auth.decorators import login_not_required
from django.urls import path

from agentapp.console import approval, inbox, outcome, shell, signin

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
]
