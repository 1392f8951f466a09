"""When something of one's own begins and ends: an absence, or a right that is lent."""

from datetime import datetime

from django import forms
from django.utils import timezone

from approvals.clock import is_too_far

_LOCAL = "%Y-%m-%dT%H:%M"


class SpanForm(forms.Form):
    """An empty beginning means now. It cannot begin or end in the past."""

    since = forms.DateTimeField(input_formats=[_LOCAL], required=False)
    until = forms.DateTimeField(input_formats=[_LOCAL], error_messages={"required": "Say until when."})

    def clean_since(self) -> datetime:
        now = timezone.now()
        return _near(max(self.cleaned_data["since"] or now, now))

    def clean_until(self) -> datetime:
        until: datetime = self.cleaned_data["until"]
        if until <= timezone.now():
            raise forms.ValidationError("That moment has passed.")
        return _near(until)


def _near(moment: datetime) -> datetime:
    if is_too_far(moment):
        raise forms.ValidationError("That is more than ten years from now.")
    return moment
