"""Sends back with a form what it was made from, so that nobody overwrites a change they have not seen."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.core import signing
from django.core.exceptions import ValidationError

from approvals import signed_texts
from approvals.digest import sha256
from approvals.rule_terms import as_text

NAME = "as_shown"
"""The name of the field, in forms and templates."""

_SALT = "approvals.as_shown"
_LONG = 60


class AsShown(forms.Field):
    """Signed digests of what a row said when its form was shown. A response with errors has fresh ones.

    `now` is what the row says now, and `labels` are the form's names for its fields.
    """

    def __init__(self, now: Mapping[str, Any], labels: Mapping[str, str]) -> None:
        self.now, self.labels = now, labels
        self.digests = {name: sha256(signing.JSONSerializer().dumps(value).decode()) for name, value in now.items()}
        super().__init__(required=False, widget=forms.HiddenInput, initial=signed_texts.sign(self.digests, _SALT))

    def clean(self, value: Any) -> None:
        try:
            then = signed_texts.read(str(value or ""), _SALT)
        except signed_texts.BadSignature:
            then = None
        if then == self.digests:
            return
        changed = [name for name in self.now if isinstance(then, dict) and then.get(name) != self.digests[name]]
        what = f": {', '.join(self._said(name) for name in changed)}" if changed else ""
        raise ValidationError(
            f"Somebody changed this meanwhile{what}. Nothing was saved, and what you typed is kept. Check it, "
            "then save again.",
            code="changed_meanwhile",
        )

    def bound_data(self, data: Any, initial: Any) -> Any:
        """After the error, the user has seen the new values, and saves again knowing them."""
        return initial

    def has_changed(self, initial: Any, data: Any) -> bool:
        return False

    def _said(self, name: str) -> str:
        label, text = self.labels.get(name, name), as_text(self.now[name])
        return f"{label} (now {text})" if len(text) <= _LONG and "\n" not in text else label
