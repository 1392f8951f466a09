"""Bring rules into force as people do: on the page of their versions."""

from typing import Any

from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse

from approvals.models import Rule, RuleVersion


def do(client: Client, rule: Rule, act: str, **fields: Any) -> str:
    """Press a button there, on the draft as it stands. Returns the text of the next page."""
    draft = RuleVersion.objects.filter(rule=rule, state__in=RuleVersion.OPEN).first()
    seen = {"terms": draft.terms_digest} if draft is not None else {}
    answer = client.post(reverse("admin:rule_do", args=[rule.pk]), {"do": act, **seen, **fields})
    assert answer.status_code == 302, answer
    return " ".join(str(message) for message in get_messages(answer.wsgi_request))


def activate(client: Client, rule: Rule) -> None:
    """Simulate the rule's draft and bring it into force."""
    do(client, rule, "simulate")
    said = do(client, rule, "activate")
    assert "is in force" in said, said


def in_force(client: Client, rule: Rule) -> Rule:
    """The rule, with its draft activated."""
    activate(client, rule)
    rule.refresh_from_db()
    return rule
