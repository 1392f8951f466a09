"""The closed lists that rules, tools and approvals share."""

from django.db import models


class EffectClass(models.TextChoices):
    READ = "read", "Read: changes nothing"
    REVERSIBLE = "reversible", "Reversible: can be undone exactly"
    COMPENSABLE = "compensable", "Compensable: can be made good"
    IRREVERSIBLE = "irreversible", "Irreversible: cannot be taken back"


class Risk(models.TextChoices):
    LOW = "low", "Low"
    MEDIUM = "medium", "Medium"
    HIGH = "high", "High"
    CRITICAL = "critical", "Critical"


HIGH_RISKS = (Risk.HIGH, Risk.CRITICAL)
"""Where one careless approval could be costly: more is asked of the people who approve."""


class Verdict(models.TextChoices):
    ALLOW = "allow", "Allow: runs without a person"
    ASK = "ask", "Ask: waits for a person"
    DENY = "deny", "Deny: refused, the model is told why"


class AnsweredBy(models.TextChoices):
    PEOPLE = "people", "People with the right to decide"
    CUSTOMER = "customer", "The customer of the conversation"


class ApprovalKind(models.TextChoices):
    AUTHORIZATION = "authorization", "Authorization by people"
    CONFIRMATION = "confirmation", "Confirmation by the customer"
    PLAN = "plan", "Authorization of several calls as one plan"


class Assurance(models.TextChoices):
    """How people who approve show who they are. If a field may be empty, empty asks for nothing."""

    PASSWORD = "password", "A sign-in within the last five minutes"
    TOTP = "totp", "A second step within the last five minutes"
    PASSKEY = "passkey", "A passkey, used within the last five minutes"
    SIGNED = "signed", "A passkey that signs this very decision"


class DecisionType(models.TextChoices):
    APPROVE = "approve", "Approve"
    EDIT = "edit", "Approve with changes"
    REJECT = "reject", "Reject"
    RESPOND = "respond", "Respond in the tool's place"


def every_decision() -> list[str]:
    return [str(value) for value in DecisionType.values]
