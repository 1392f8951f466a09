"""What people give each other about requests: the right to decide, lent for a time, and comments.

`delegations` writes the first, `comments` the second.
"""

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models
from django.db.models import F, Q

from approvals.ids import uuid7
from approvals.models.approvals import Approval
from approvals.models.choices import Risk
from approvals.sealed import new_salt


class Delegation(models.Model):
    """The right of one person to decide for their groups, lent to another for a time. Written by `delegations`.

    It lends what the groups may decide, never the right to decide itself, and never what was itself lent. It counts
    while its lender is active, may decide, and is in the group.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    lender = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="delegations")
    deputy = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="lent_delegations")
    groups = models.ManyToManyField(
        Group, help_text="The groups whose requests the deputy decides. None chosen: no requests."
    )
    tools = models.JSONField(default=list, blank=True, help_text="Names of the tools it covers. Empty: every tool.")
    highest_risk = models.CharField(max_length=10, choices=Risk, default=Risk.HIGH)
    since = models.DateTimeField()
    until = models.DateTimeField()
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True, help_text="When it was ended before its time.")
    ended_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        ordering = ["-created_at"]
        permissions = [("revoke_delegation", "Can end delegations of others")]
        indexes = [models.Index(fields=["deputy", "until"], name="delegation_of_deputy")]
        constraints = [
            models.CheckConstraint(
                condition=~Q(lender=F("deputy")),
                name="delegation_has_another",
                violation_error_message="Nobody can lend a right to themselves.",
            ),
            models.CheckConstraint(
                condition=Q(until__gt=F("since")),
                name="delegation_ends_after_it_begins",
                violation_error_message="A delegation must end after it begins.",
            ),
            models.CheckConstraint(
                condition=Q(highest_risk__in=[Risk.LOW, Risk.MEDIUM, Risk.HIGH]),
                name="delegation_never_critical",
                violation_error_message="The right to decide critical requests cannot be lent.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.deputy} for {self.lender}"


class Comment(models.Model):
    """What somebody wrote to their colleagues about a request. It never changes. Written by `comments`.

    It is only for people: no model reads it, and no decision rests on it.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="comments")
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    text = models.TextField()
    salt = models.CharField(
        max_length=32, blank=True, default=new_salt, editable=False, help_text="For the ledger's digests of its words."
    )
    at = models.DateTimeField()

    class Meta:
        ordering = ["at", "id"]
        constraints = [
            models.CheckConstraint(
                condition=~Q(text=""),
                name="comment_says_something",
                violation_error_message="A comment cannot be empty.",
            )
        ]

    def __str__(self) -> str:
        return self.text[:80]
