"""What somebody mistypes behind `manage.py`: one line and an exit code, never a traceback (A63, B6)."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from django.core.management import CommandError, load_command_class

from tests import database as db

# Lone surrogates are what Python makes of bytes that are no UTF-8.
WORDS = ("\udcff", "x" * 600, "a\nb\x1b[2J", "", "-1", "nan", "1e400", "9" * 400, "\u00b2", "%s", "[1]", "{}")
FORMS = {
    "jobs": ("list --status ?", "list --type ?", "list --queue ?", "list --limit ?", "list --cursor ?",
             "list --tenant ?", "list --workspace ?", "show ?", "show ? --tenant ?", "wait ? --timeout 0",
             "wait {job} --timeout ?", "steer {job} ?", "follow-up {job} ?", "abort {job} --reason ?", "cancel ?",
             "cancel {job} --revision ?", "pause {job} --revision 77 --reason ?", "resume {job} --delay ?",
             "resume {job} --at ?", "resume {job} --reason ?", "enqueue ?", "enqueue echo ?",
             *(f"enqueue echo {{}} --{name} ?" for name in (
                 "queue", "priority", "version-of-type", "delay", "key", "job-id", "agent", "session-key", "singleton",
                 "target", "group", "deadline", "tenant", "workspace"))),
    "owners": ("put ?", "put r --label ?", "put r --expires-days ?", "put r --concurrency ?", "put r --tenant ?",
               "put r --workspace ?", "revoke --tenant ?", "revoke --workspace ?", "list --workspace ?"),
    "throttles": ("pause queue ? --reason x", "pause queue chat --reason ?", "pause queue chat --reason x --for ?",
                  "pause tenant ? --reason x", "pause queue chat --workspace ? --reason x", "pause ? x --reason x",
                  "cap type ? 3", "cap queue chat ?", "resume worker_group ?", "resume tenant ?", "list --workspace ?"),
    "erase": ("job ? --dry-run", "job {job} --yes --reason ?", "job no --tenant ? --dry-run",
              "job no --workspace ? --dry-run", "tenant ? --dry-run", "tenant acme --yes --redact-only --reason ?",
              "tenant acme --workspace ? --dry-run"),
    "verify": ("--job ?", "--workspace ?", "--tenant ?", "--since ?", "--limit ?"),
    "predeploy": ("?",),
}


def run(name: str, words: Sequence[str], app: str = "jobs") -> str:
    """Run it as `manage.py` would; what it said, which standard output must be able to take."""
    command, out, err = load_command_class(app, name), io.StringIO(), io.StringIO()
    try:
        options = vars(command.create_parser("manage.py", name).parse_args(list(words)))
    except (CommandError, SystemExit):
        # What argparse says quotes what was typed.
        return ""
    options.pop("args", None)
    try:
        if name == "jobs" and options.get("timeout", 0) > 1:
            # One that is a number of seconds is waited for.
            return ""
        command.execute(**{**options, "stdout": out, "stderr": err, "skip_checks": True, "no_color": True})
    except CommandError as error:
        err.write(str(error))
    except SystemExit as error:
        err.write(f"exit {error.code}")
    return out.getvalue().encode().decode() + err.getvalue()


@pytest.mark.usefixtures("owned_site")
@pytest.mark.parametrize("name", FORMS)
def test_no_word_behind_a_command_is_a_traceback(driver, name: str, capsys) -> None:
    """A63: of the site's own checks, or argparse's; what it says is fit for a terminal."""
    driver.enqueue(tenant="acme")
    job = driver.enqueue()
    for form in FORMS[name]:
        for word in WORDS:
            words = [word if part == "?" else job if part == "{job}" else part for part in form.split()]
            told = run(name, words)
            assert "\x1b" not in told, (form, ascii(word[:20]), ascii(told[:200]))
    capsys.readouterr()
    assert db.rows("SELECT count(*) FROM jobs_tenant WHERE NOT EXISTS (SELECT 1 FROM jobs_job j WHERE j.tenant_id ="
                   " jobs_tenant.id) AND NOT EXISTS (SELECT 1 FROM jobs_owner o WHERE o.tenant_id = jobs_tenant.id)"
                   " AND subject IS NOT NULL") == [(0,)]
