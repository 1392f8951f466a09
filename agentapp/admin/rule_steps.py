"""The steps of a rule as a table of a form: after how long, and what happens then. Groups are chosen, not typed."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.utils.html import format_html
from django.utils.safestring import SafeString

from approvals.escalation import MAX_AFTER, MAX_STEPS, Step, groups_named, steps_of, validate_steps

_REMIND = "remind"


class StepsWidget(forms.MultiWidget):
    """A line for each step: a number of seconds, and a choice."""

    def __init__(self) -> None:
        lines: list[forms.Widget] = []
        for number in range(1, MAX_STEPS + 1):
            after = {
                "min": 1,
                "max": MAX_AFTER,
                "placeholder": "seconds",
                "aria-label": f"Step {number}: after how many seconds",
            }
            lines += [forms.NumberInput(after), forms.Select({"aria-label": f"Step {number}: what happens"})]
        super().__init__(lines)

    def decompress(self, value: Any) -> list[Any]:
        lines: list[Any] = []
        for step in steps_of(value or []):
            lines += [step.after, _choice(step)]
        return lines + [None, ""] * (MAX_STEPS - len(lines) // 2)

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        # Both are lists: a rule keeps steps, a form sends texts.
        kept = all(isinstance(one, dict) for one in value or [])
        return super().get_context(name, self.decompress(value) if kept else value, attrs)

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        return format_html('<div class="steps">{}</div>', super().render(name, value, attrs, renderer))


class StepsField(forms.MultiValueField):
    """The list of steps that a rule keeps."""

    widget = StepsWidget

    def __init__(self, **kwargs: Any) -> None:
        parts: list[forms.Field] = []
        for _ in range(MAX_STEPS):
            parts += [forms.IntegerField(required=False), forms.ChoiceField(required=False)]
        super().__init__(parts, required=False, require_all_fields=False, **kwargs)

    def offer(self, current: object) -> None:
        """Offer the groups that exist, and those that the rule already names."""
        names = sorted({*Group.objects.values_list("name", flat=True), *filter(None, groups_named(current))})
        choices: list[Any] = [
            ("", "No step"),
            (_REMIND, "Those who may decide are reminded"),
            ("Also decides", [(f"group:{name}", f"{name} may decide too") for name in names]),
            ("Reminds, and also decides", [(f"both:{name}", f"Reminded, and {name} may decide too") for name in names]),
        ]
        for field, widget in zip(self.fields[1::2], self.widget.widgets[1::2], strict=True):
            field.choices = widget.choices = choices  # type: ignore[attr-defined]

    def has_changed(self, initial: Any, data: Any) -> bool:
        return super().has_changed(StepsWidget().decompress(initial), data)

    def compress(self, lines: Sequence[Any]) -> list[dict[str, Any]]:
        steps = []
        pairs = zip(lines[0::2], lines[1::2], strict=True)
        for number, (after, choice) in enumerate(pairs, start=1):
            if after is None and not choice:
                continue
            if after is None or not choice:
                raise ValidationError(f"Step {number}: say after how many seconds, and what happens then.")
            kind, _, group = str(choice).partition(":")
            steps.append(Step(after, group, remind=kind != "group").as_json())
        steps.sort(key=lambda step: step["after"])
        validate_steps(steps)
        return steps


def _choice(step: Step) -> str:
    if not step.group:
        return _REMIND
    return f"{'both' if step.remind else 'group'}:{step.group}"
