"""A moment as a condition sees it, by the installation's clock and business hours. Pure."""

from datetime import datetime
from typing import Any

from django.utils import timezone

from approvals.business_hours import DAYS, BusinessHours


def seen(moment: datetime, hours: BusinessHours) -> dict[str, Any]:
    """What a condition finds in `now`."""
    local = moment.astimezone(hours.zone or timezone.get_default_timezone())
    return {
        "hour": local.hour,
        "minute": local.minute,
        "weekday": DAYS[local.weekday()],
        "day": local.day,
        "month": local.month,
        "date": local.date().isoformat(),
        "is_business_hours": hours.contains(moment),
    }
