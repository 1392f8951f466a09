"""What the admin pages of every app share: rows whose changes are recorded, and records nobody changes."""

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from django import forms
from django.apps import apps
from django.contrib import admin, messages
from django.contrib.admin.utils import get_fields_from_path, unquote
from django.contrib.admin.widgets import url_params_from_lookup_dict
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import models, transaction
from django.db.models.constants import LOOKUP_SEP
from django.forms.fields import InvalidJSONInput
from django.forms.models import _get_foreign_key
from django.forms.utils import pretty_name
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.text import capfirst

from approvals import as_shown, changes, configuration, ledger
from approvals.digest import MalformedJSON, canonical, parse
from approvals.masking import MASK, masked

# Events on a history page.
MAX_HISTORY = 100
# What list filters may ask about a column: whole values only, so that nobody can guess one piece by piece.
_COMPARES = frozenset({"exact", "in", "isnull", "isempty", "gt", "gte", "lt", "lte"})
_DATES = frozenset({"year", "month", "day"})


class StrictJSONField(forms.JSONField):
    """JSON that means the same to every part of the system: no NaN, no repeated key, no numbers that lose digits."""

    when_empty: Callable[[], Any] = staticmethod(lambda: None)

    def to_python(self, value: Any) -> Any:
        if isinstance(value, str):
            value = value.strip()
        if isinstance(value, str) and value:
            try:
                parse(value)
            except MalformedJSON as error:
                raise ValidationError(str(error), code="invalid") from error
        found = super().to_python(value)
        return self.when_empty() if found is None else found

    def bound_data(self, data: Any, initial: Any) -> Any:
        """What was typed comes back unchanged, even if it cannot be read or repeats a key."""
        return initial if self.disabled or data is None else InvalidJSONInput(data)


# Checkboxes need no script, and a screen reader can tell what they are.
FORM_FIELDS: dict[Any, dict[str, Any]] = {
    models.JSONField: {"form_class": StrictJSONField},
    models.ManyToManyField: {"widget": forms.CheckboxSelectMultiple},
}


class RowAdmin(admin.ModelAdmin):
    """The pages of a row that does not exist, or no longer exists, are not found, like any other page."""

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        """Whether the address of a list may ask this: what its filters ask, and which row it is.

        Django allows any question about any column: masked values could be guessed from what a list finds, and a
        regular expression could keep a process busy.
        """
        return super().lookup_allowed(lookup, value, request) and (
            self._is_offered(lookup, request) or self._is_limit(lookup, value)
        )

    def _is_offered(self, lookup: str, request: HttpRequest) -> bool:
        columns = {"pk", self.opts.pk.name}
        for each in self.get_list_filter(request):
            if isinstance(each, type):
                if lookup == getattr(each, "parameter_name", None):
                    return True
                continue
            path = str(each[0] if isinstance(each, (list, tuple)) else each)
            columns |= {path, *self._keys_behind(path)}
        column, _, asked = lookup.rpartition(LOOKUP_SEP)
        if lookup in columns or (column in columns and asked in _COMPARES):
            return True
        return self.date_hierarchy is not None and column == self.date_hierarchy and asked in _COMPARES | _DATES

    def _keys_behind(self, path: str) -> list[str]:
        """How a filter by a relation names the row at its other end."""
        last: Any = get_fields_from_path(self.model, path)[-1]
        if not last.is_relation:
            return []
        there = last.path_infos[-1].to_opts.pk.name
        return [f"{path}{LOOKUP_SEP}{name}" for name in {"pk", there, getattr(last, "target_field", last).name}]

    def _is_limit(self, lookup: str, value: Any) -> bool:
        """Whether another table limits the rows that its pop-up window offers in this way."""
        limits = (each() if callable(each) else each for each in self.opts.related_fkey_lookups)
        return any((lookup, value) in url_params_from_lookup_dict(limit).items() for limit in limits)

    def _get_obj_does_not_exist_redirect(self, request: HttpRequest, opts: Any, object_id: str) -> NoReturn:
        # Django would redirect to the start of the admin, which looks as if all were well.
        raise Http404(f"There is no {opts.verbose_name} {object_id}.")


class RecordedAdmin(RowAdmin):
    """Writes one event, with before and after, for every row it changes. If nothing changed, it writes nothing.

    A form that was shown before somebody else's change is refused: it would undo that change unseen.
    """

    formfield_overrides = FORM_FIELDS
    about = ""
    """What the rows are for, shown above their list."""
    when_empty = ""
    """What to do first, shown if there are none."""

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """What the ledger says about the row: everything that changed it, here or by a command, before and after."""
        row = self.get_object(request, unquote(object_id))
        found = changes.of(row, MAX_HISTORY) if row is not None else []
        return super().history_view(
            request, object_id, {"recorded": found, "most": MAX_HISTORY, **(extra_context or {})}
        )

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        made = super().formfield_for_dbfield(db_field, request, **kwargs)
        if isinstance(made, StrictJSONField) and not db_field.null:
            # An emptied field takes the default: the column allows no NULL.
            made.when_empty = db_field.get_default
        return made

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        if request.method != "POST" or object_id is None:
            return super().changeform_view(request, object_id, form_url, extra_context)
        with transaction.atomic():
            # Held from before it is read until it is stored, so that what was compared is what is changed.
            if (row := self.get_object(request, unquote(object_id))) is not None:
                configuration.hold(row)
            return super().changeform_view(request, object_id, form_url, extra_context)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        made: Any = super().get_form(request, obj, change=change, **kwargs)
        if change and obj is not None:
            labels = {name: str(field.label or pretty_name(name)) for name, field in made.base_fields.items()}
            of_rows = self.of_inlines(request, obj)
            said = {name: value for name, value in self.said_by(obj).items() if name in labels}
            made.base_fields[as_shown.NAME] = as_shown.AsShown({**said, **of_rows}, labels)
        return made

    def said_by(self, row: Any) -> dict[str, Any]:
        """What the row's form shows, as it is stored."""
        return configuration.describe(row)

    def of_inlines(self, request: HttpRequest, row: models.Model) -> dict[str, list[dict[str, Any]]]:
        """The rows that are changed on the same form, by the plural of their name."""
        found = {}
        for inline in self.get_inline_instances(request, row):
            key = _get_foreign_key(self.model, inline.model, fk_name=inline.fk_name)
            rows = inline.get_queryset(request).filter(**{key.name: row}).order_by("pk")
            rows = rows.select_for_update(of=("self",), no_key=True) if request.method == "POST" else rows
            found[str(capfirst(inline.opts.verbose_name_plural))] = [configuration.describe(each) for each in rows]
        return found

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        # Links are stored later, in save_related; the event is about both.
        form.stored_before = configuration.before(obj)
        super().save_model(request, obj, form, change)

    def save_related(self, request: HttpRequest, form: Any, formsets: Iterable[Any], change: bool) -> None:
        with ledger.transaction():
            form.save_m2m()
            configuration.record_change(form.instance, form.stored_before, actor_of(request))
            for formset in formsets:
                self.save_formset(request, form, formset, change)

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        rows = formset.save(commit=False)
        before = [configuration.before(row) for row in rows]
        for row in formset.deleted_objects:
            configuration.delete(row, actor_of(request))
        for row in rows:
            row.save()
        formset.save_m2m()
        for row, was in zip(rows, before, strict=True):
            configuration.record_change(row, was, actor_of(request))

    def delete_model(self, request: HttpRequest, obj: models.Model) -> None:
        configuration.delete(obj, actor_of(request))

    def delete_queryset(self, request: HttpRequest, queryset: models.QuerySet[Any]) -> None:
        with ledger.transaction():
            for obj in queryset:
                configuration.delete(obj, actor_of(request))

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """What is deleted with a row. Rows that only link it to others have no name: they are counted, not listed."""
        listed, counts, missing, protected = super().get_deleted_objects(objs, request)
        linking = [model._meta for model in apps.get_models(include_auto_created=True) if model._meta.auto_created]
        return (
            _without(listed, tuple(f"{capfirst(opts.verbose_name)}: " for opts in linking)),
            counts,
            missing,
            protected,
        )


def _without(listed: list[Any], beginnings: tuple[str, ...]) -> list[Any]:
    """Nested lists of sentences, without those that begin like this."""
    kept = [_without(one, beginnings) if isinstance(one, list) else one for one in listed]
    return [one for one in kept if one and not (isinstance(one, str) and one.startswith(beginnings))]


class SwitchedAdmin(RecordedAdmin):
    """Rows that can be switched on and off, even several at once. Each change has its own event."""

    switch = "enabled"

    @admin.action(permissions=["change"], description="Switch on")
    def switch_on(self, request: HttpRequest, queryset: models.QuerySet[Any]) -> None:
        self.set_all(request, queryset, self.switch, True)

    @admin.action(permissions=["change"], description="Switch off")
    def switch_off(self, request: HttpRequest, queryset: models.QuerySet[Any]) -> None:
        self.set_all(request, queryset, self.switch, False)

    def set_all(self, request: HttpRequest, queryset: models.QuerySet[Any], column: str, value: Any) -> None:
        """Set one column of several rows, and say how many of them changed."""
        changed = 0
        try:
            with ledger.transaction():
                # Held, so that what somebody else sets in the meantime is not overwritten.
                for row in queryset.select_for_update(of=("self",), no_key=True):
                    setattr(row, column, value)
                    row.validate_constraints()
                    changed += configuration.save(row, actor_of(request)) is not None
        except ValidationError as error:
            self.message_user(request, f"Nothing was changed. {' '.join(error.messages)}", messages.ERROR)
            return
        self.message_user(request, f"{changed} changed.", messages.SUCCESS)


class ReadOnlyAdmin(RowAdmin):
    """A record: people with the right to view it can look at it, and nobody can change it."""

    actions: Any = None
    ordering = ["-pk"]
    list_per_page = 50
    show_full_result_count = False
    about = ""
    when_empty = ""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if request.method == "POST" and not self.actions:
            raise PermissionDenied
        return super().changelist_view(request, extra_context)

    def render_change_form(self, request: Any, context: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        # A record is its own history.
        return super().render_change_form(request, context | {"is_record": True}, *args, **kwargs)


def actor_of(request: HttpRequest) -> str:
    """The name an event gives the person behind an admin page."""
    if not request.user.is_authenticated:
        raise PermissionDenied
    return ledger.actor_of(request.user, "admin")


def masked_arguments(text: str, secret_fields: list[str]) -> str:
    """Arguments for people to read, without the values of secret fields; a dash if there are none."""
    if not text:
        return "-"
    if not secret_fields:
        return text
    try:
        arguments = parse(text)
    except MalformedJSON:
        arguments = None
    if not isinstance(arguments, dict):
        return MASK  # what cannot be read may hold a secret anywhere
    return canonical(masked(arguments, secret_fields))
