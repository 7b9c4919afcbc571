"""`manage.py owners`: what an operator does at night."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError

from jobs.management.operating import person
from jobs.models import Owner, Receipt, Tenant
from tests.driver import Driver
from tests.making import tenant_id

pytestmark = pytest.mark.usefixtures("database")


def said(*arguments: str) -> str:
    out = StringIO()
    call_command("owners", *arguments, stdout=out)
    return out.getvalue()


def test_owners_are_put_listed_and_revoked_without_showing_a_reference() -> None:
    """E10: one line each, with who runs."""
    told = said("put", "vault/jobs/7", "--tenant", "acme", "--label", "the vault", "--expires-days", "2")
    assert told.startswith("live  default  tenant acme  generation 1  0 of 1 run  vaul\u2026  ends ")
    assert said("list") == told
    assert said("put", "vault/jobs/7", "--tenant", "acme", "--rotate").split("  ")[3] == "generation 2"
    assert said("revoke", "--tenant", "acme").startswith("revoked  default  tenant acme  generation 2")
    assert "vault/jobs/7" not in said("list", "--workspace", "default")
    assert Owner.objects.get().tenant_id == tenant_id("acme")


@pytest.mark.parametrize(("arguments", "words"), [
    (("revoke", "--tenant", "nobody"), "no such tenant"), (("revoke",), "has no owner"),
    (("put", ""), "reference: must be 1 to 500"), (("put", "x", "--concurrency", "0"), "concurrency: must be"),
    (("put", "x", "--workspace", "else"), "no workspace 'else'"),
])
def test_what_cannot_be_is_one_line(arguments: tuple[str, ...], words: str) -> None:
    """A refusal names what would be right; nothing is written."""
    with pytest.raises(CommandError, match=words):
        said(*arguments)
    assert not Owner.objects.exists()


def test_a_refused_owner_leaves_no_tenant_behind() -> None:
    """E3: a tenant is made after every refusal."""
    with pytest.raises(CommandError, match="concurrency: must be"):
        said("put", "x", "--tenant", "mistyped", "--concurrency", "0")
    assert not Tenant.objects.filter(subject="mistyped").exists()


def test_who_rotates_is_named_in_the_receipts(driver: Driver, owned_site: None) -> None:
    """E10, E12: people are named as `shell:` and their login, by whatever command they act."""
    said("put", "plain")
    driver.enqueue("owned")
    job = driver.claim_one()
    said("put", "other")
    assert f'"by":"{person()}"' in Receipt.objects.get(job_id=job.id, kind="job.interrupted").body


@pytest.mark.parametrize("words", [
    ("owners", "revoke"), ("keys", "create", "x"), ("erase", "job", "x"), ("explain", "x"), ("jobs", "show", "x"),
    ("enqueue", "echo", "--tenant", "x")])
def test_a_database_that_is_away_is_one_line(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """RELIABILITY: whatever the command, and never a traceback."""
    def gone(*args: object, **more: object) -> None:
        raise OperationalError("connection refused\n\tIs the server running?")

    monkeypatch.setattr("jobs.services.tenancy.workspace", gone)
    monkeypatch.setattr("jobs.store.lookup.place", gone)
    with pytest.raises(CommandError, match=r"^The database cannot be reached: connection refused$"):
        call_command(*words, stdout=StringIO())
