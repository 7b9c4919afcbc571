"""What timers say, as a form in the admin: judged by the service, each refusal at its field (D13)."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.contrib.admin.widgets import AdminSplitDateTime

from jobs import codecs
from jobs.admin import showing
from jobs.admin.places import PlaceForm
from jobs.errors import Invalid, JobsError
from jobs.models import Tenant, Timer
from jobs.models.timer import CATCH_UPS, OVERLAPS
from jobs.redaction import restored
from jobs.services import tenancy, timers
from jobs.services.recurring import Draft

# What a text field in a browser is still good for.
EDITABLE = 32 * 1024


def _texts(label: str, rows: int, means: str) -> Any:
    return forms.CharField(required=False, label=label.capitalize(), help_text=means, strip=True, widget=forms.Textarea(
        attrs={"rows": rows, "cols": 80, "class": "vLargeTextField", "spellcheck": "false"}))


class TimerForm(forms.ModelForm):
    """All that a timer says, judged by the service."""

    version = forms.IntegerField(required=False, min_value=1, help_text="Empty: the current one at each moment.")
    said_input = _texts("input", 8, "As JSON.")
    said_options = _texts("options", 4, 'What an enqueue takes beside, as JSON: {"queue": "chat", "priority": 5}.')
    cron = forms.CharField(required=False, max_length=200, help_text=(
        'Five fields, minute, hour, day, month, day of the week: "0 3 * * *"; or a name as @hourly, @daily, @weekly.'))
    every_s = forms.IntegerField(required=False, label="Every so many seconds", help_text="Instead of cron.")
    zone = forms.CharField(required=False, max_length=64,
                           help_text="Whose clocks cron means, as Europe/Berlin; empty: UTC.")
    anchor_at = forms.SplitDateTimeField(required=False, widget=AdminSplitDateTime, help_text=(
        "Where an interval is counted from; empty: from now."))
    moment_field = forms.CharField(required=False, max_length=64,
                                   help_text="The field of the input that is given the moment; empty: none.")
    catch_up = forms.ChoiceField(choices=[(word, word) for word in CATCH_UPS],
                                 help_text="Of moments that nobody was there for: none, the last, or all.")
    catch_up_most = forms.IntegerField(required=False, help_text="With all: the last so many; empty: 10.")
    overlap = forms.ChoiceField(choices=[(word, word) for word in OVERLAPS], initial="allow",
                                help_text="While its job before is active: another one, none, or in its place.")
    revision = forms.IntegerField(required=False, widget=forms.HiddenInput)

    class Meta:
        model = Timer
        fields = ("type",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        row = self.instance
        if row.pk and not row._state.adding:
            for name in ("version", "cron", "every_s", "zone", "anchor_at", "moment_field", "catch_up", "overlap",
                         "revision"):
                self.initial[name] = getattr(row, name)
            self.initial["catch_up_most"] = row.catch_up_most if row.catch_up == "all" else None
            self.initial["said_input"] = showing.readable(row.input)
            self.initial["said_options"] = showing.readable(row.options)
        for name in ("cron", "zone", "moment_field"):
            self.fields[name].widget.attrs["class"] = "vTextField"

    def clean(self) -> Any:
        """As the service; each refusal at its field."""
        said = super().clean() or self.cleaned_data
        if not self.errors:
            try:
                said["draft"] = self.draft()
                self.judge(said["draft"])
            except JobsError as error:
                self._blame(error)
        return said

    def draft(self) -> Draft:
        """What it should say. Raises Invalid for what is no JSON."""
        said, row = self.cleaned_data, self.instance
        given = {name: said[name] for name in ("version", "cron", "every_s", "zone", "anchor_at", "moment_field",
                                               "catch_up_most") if said.get(name) not in (None, "")}
        # Whoever may not see inputs leaves them as they are.
        sees = "said_input" in self.fields
        return Draft(said["type"], self._json("input", row.input) if sees else codecs.stored(row.input),
                     self._json("options", row.options), **given, catch_up=said["catch_up"], overlap=said["overlap"])

    def _json(self, name: str, stored: str) -> Any:
        """The JSON that somebody means who saw it without its secrets."""
        try:
            return restored(codecs.parse(self.cleaned_data[f"said_{name}"] or "{}", max_bytes=codecs.MAX_PAYLOAD_BYTES),
                            json.loads(stored or "null"))
        except Invalid as error:
            raise Invalid(error.message, field=name, code=error.reason_code) from None
        except ValueError:
            raise Invalid("Write out each [redacted] that is new, or has moved.", field=name, code="left_out") from None

    def judge(self, draft: Draft) -> None:
        """Raises what the service would."""
        timers.check(self.instance.tenant, self.instance.name, draft)

    def _blame(self, error: JobsError) -> None:
        faults = (error.faults if isinstance(error, Invalid) else []) or [
            {"field": error.field or "", "message": error.message}]
        for fault in faults:
            field = fault["field"] or ""
            # Pointers point into the input; what is no field of a timer's is an option's.
            said = "said_input" if field in ("", "input") or field.startswith("/") else "said_options"
            place = field if field in self.fields else said if said in self.fields else None
            named = "" if place == field or field in ("", "input", "options") else f"{field}: "
            self.add_error(place, f"{named}{fault['message']}")

    def _post_clean(self) -> None:
        """The service judges the whole row, not the model."""


class BlindForm(TimerForm):
    """The same for who may not see inputs."""

    said_input = None


class NewTimerForm(TimerForm, PlaceForm):
    """A new one, with its place and its name."""

    tenant = forms.CharField(max_length=tenancy.SUBJECT_LIMIT, required=False,
                             help_text="A tenant's subject; empty: of no tenant.")

    class Meta:
        model = Timer
        fields = ("name", "type")

    def judge(self, draft: Draft) -> None:
        """As the service, of a tenant that may be new."""
        said = self.cleaned_data
        timers.check(Tenant(workspace=said["workspace"], subject=said["tenant"]), said["name"], draft)
        if Timer.objects.filter(tenant__workspace=said["workspace"], tenant__subject=said["tenant"],
                                name=said["name"]).exists():
            raise timers.TimerExists(field="name")
