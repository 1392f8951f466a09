"""What the audit trail found, as a file to keep. Each export is itself an event."""

from collections.abc import Callable, Iterator

from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_POST

from agentapp.audit import exporting, finding, standing
from agentapp.audit.query import Malformed, parse
from agentapp.console.audit import address, allowed
from agentapp.streaming import attachment
from approvals import ledger
from approvals.digest import storable
from approvals.proof import keys

_KINDS: dict[str, tuple[Callable[[exporting.Export], Iterator[bytes]], str, str]] = {
    "jsonl": (exporting.json_lines, "jsonl", "application/x-ndjson"),
    "csv": (exporting.zipped_csv, "csv.zip", "application/zip"),
}


@require_POST
def export(request: HttpRequest, kind: str) -> HttpResponseBase:
    """Every event found now, oldest first. A query that cannot be read leads back to the page that says why."""
    user = allowed(request)
    if kind not in _KINDS:
        raise Http404("There is no such format.")
    typed, now = storable(request.POST.get("q", "")).strip(), timezone.now()
    try:
        asked = parse(typed)
        found = finding.find(asked, user, now)
    except Malformed:
        return redirect(address(typed))
    exporting.note(user, asked, kind)
    write, ending, content_type = _KINDS[kind]
    said = {"q": typed, "until": now.isoformat(), "chain": standing.now().state}
    wanted = exporting.Export(
        found.filter(at__lte=now),
        said,
        ledger.actor_of(user),
        None if finding.sees_all(user) else lambda events: finding.hidden(user, events),
        keys.succession(),
    )
    return attachment(request, write(wanted), f"audit-{now:%Y-%m-%d-%H%M}.{ending}", content_type)
