"""What proves the record to others: checks of the chain, proofs of single events, receipts, and the verifier."""

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from http import HTTPStatus
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib.auth.models import User
from django.core.validators import MaxValueValidator, MinValueValidator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from agentapp import nudges
from agentapp.audit import finding, standing
from agentapp.console.audit import address, allowed
from agentapp.console.parts import render_part
from agentapp.console.shell import signed_in
from agentapp.insights.periods import FIRST_YEAR, LAST_YEAR
from approvals import entitlement, lens
from approvals.digest import canonical, storable
from approvals.models import Checkpoint, Event, LedgerKey, Verification
from approvals.proof import inclusion, receipts, signing_key, verifying
from approvals.proof.chains import Scope

LISTED = 20
# At the ends of the calendar, the next day, or the same in another time zone, is no day any more.
_SAID = f"Give a day from {FIRST_YEAR} to {LAST_YEAR}."
_AWAY_FROM_THE_ENDS = (
    MinValueValidator(date(FIRST_YEAR, 1, 1), _SAID),
    MaxValueValidator(date(LAST_YEAR, 12, 31), _SAID),
)


@dataclass(frozen=True)
class Check:
    """One check of the chain, as the page shows it."""

    row: Verification
    sentence: str
    around: tuple[standing.Neighbour, ...]

    @property
    def share(self) -> int:
        """How far it is, in percent."""
        total = max(self.row.events_total, self.row.events, 1)
        return 100 * self.row.events // total


@require_safe
def proof(request: HttpRequest) -> HttpResponse:
    """What has been proved about the record, and how: checks, checkpoints, and how to check them elsewhere."""
    user = allowed(request)
    return render_part(request, "console/audit_proof.html", "checks", _proof(user))


@require_POST
def verify(request: HttpRequest) -> HttpResponse:
    """Start a check of the whole chain, or of some days. A worker does it, and the pages show its progress."""
    user = allowed(request)
    form = Days(request.POST)
    if not form.is_valid():
        return render(request, "console/audit_proof.html", {**_proof(user), "form": form}, status=422)
    verification = verifying.start(user, form.scope)
    nudges.check_ledger(verification.pk)
    if form.scope != Scope():
        return redirect("audit_proof")
    # Where the trail stood when the check was asked for.
    return redirect(address(storable(request.POST.get("q", "")).strip(), request.POST.get("from", "")))


@never_cache
@require_safe
def chain(request: HttpRequest) -> HttpResponse:
    """The state of the chain, for the strip above the trail while a check runs."""
    user = allowed(request)
    return render(request, "console/_audit_chain.html", {"standing": standing.now(user)})


@require_safe
def event_proof(request: HttpRequest, event_id: UUID) -> HttpResponse:
    """Proof that one event existed when a checkpoint was signed: a file to check elsewhere. It tells of no other."""
    user = allowed(request)
    event = Event.objects.filter(pk=event_id).first()
    if event is None or finding.hidden(user, [event]):
        raise Http404("There is no such event, or it is not for you to see.")
    try:
        said = inclusion.inclusion(event.pk)
    except inclusion.NotCovered:
        context = {
            "title": "No checkpoint covers this event yet",
            "event": event,
            "not_signed": signing_key.problem(),
            "signed_every": settings.LEDGER.checkpoint_seconds,
        }
        return render(request, "console/audit_no_proof.html", context, status=HTTPStatus.CONFLICT)
    return _file(said, f"event-{event.pk}-proof.json")


@require_safe
def receipt(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """What people decided on one request, signed, for anybody who may see the request."""
    approval = entitlement.visible(signed_in(request)).filter(pk=approval_id).first()
    if approval is None:
        raise Http404("There is no such request, or it is not for you to see.")
    try:
        said = receipts.receipt(approval)
    except signing_key.NoKey as error:
        context = {"title": "No receipt can be signed", "not_signed": str(error)}
        return render(request, "console/audit_no_proof.html", context, status=HTTPStatus.CONFLICT)
    except receipts.Erased as error:
        context = {"title": "There is no receipt for an erased request", "gone": str(error)}
        return render(request, "console/audit_no_proof.html", context, status=HTTPStatus.CONFLICT)
    return _file(said, f"{approval.reference}-receipt.json")


@require_safe
def verifier(request: HttpRequest, program: ModuleType) -> HttpResponse:
    """A program that checks exports, or proofs and receipts, without this product. It contains no secrets."""
    allowed(request)
    file = Path(str(program.__file__))
    answer = HttpResponse(file.read_text(encoding="utf-8"), content_type="text/x-python; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{file.name}"'
    return answer


def _file(said: dict[str, Any], name: str) -> HttpResponse:
    lens.leave_as_written()
    answer = HttpResponse(canonical(said), content_type="application/json")
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    answer["Cache-Control"] = "no-store"
    return answer


class Days(forms.Form):
    """What is checked: everything, or the chains in which something happened during some days."""

    since = forms.DateField(
        required=False,
        label="From",
        widget=forms.DateInput(attrs={"type": "date", "class": "input"}),
        validators=_AWAY_FROM_THE_ENDS,
    )
    until = forms.DateField(
        required=False,
        label="Until",
        widget=forms.DateInput(attrs={"type": "date", "class": "input"}),
        validators=_AWAY_FROM_THE_ENDS,
    )

    def clean(self) -> None:
        since, until = self.cleaned_data.get("since"), self.cleaned_data.get("until")
        if since and until and until < since:
            self.add_error("until", "This is before the first day.")

    @property
    def scope(self) -> Scope:
        since, until = self.cleaned_data.get("since"), self.cleaned_data.get("until")
        return Scope(since=since and _midnight(since), until=until and _midnight(until + timedelta(days=1)))


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), timezone.get_current_timezone())


def _check(row: Verification, viewer: User) -> Check:
    if row.broken is None:
        return Check(row, "", ())
    if standing.hides(viewer, row.broken):
        return Check(row, standing.HIDDEN, ())
    return Check(row, verifying.named(row.broken), standing.around(row.broken))


def _proof(viewer: User) -> dict[str, Any]:
    rows = Verification.objects.select_related("started_by").order_by("-started_at")[:LISTED]
    keys = list(LedgerKey.objects.order_by("-number"))
    return {
        "standing": standing.now(viewer),
        "checks": [_check(row, viewer) for row in rows],
        "signed_every": settings.LEDGER.checkpoint_seconds,
        "checkpoints": Checkpoint.objects.order_by("-number")[:LISTED],
        "keys": keys,
        "form": Days(),
    }
