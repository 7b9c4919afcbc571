"""`manage.py owners`: what an operator does at night."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from jobs.models import Owner
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
