"""The admin in a browser: a strict content security policy, hostile texts, and an answer from end to end."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from django.contrib.staticfiles import finders

from jobs.models import Attempt, DeadLetter
from jobs.services import limits, tenancy
from tests.edges import hostile
from tests.pages.site import Console

POLICY = "default-src 'self'; img-src 'self' data:"
TELL = ("document.addEventListener('securitypolicyviolation', event => console.error("
        "'Content Security Policy: ' + event.violatedDirective + ' ' + event.blockedURI + ' ' + event.sourceFile))")


def _answer(route):
    """The site's answer under the policy; the files of the admin as a web server would give them."""
    path = urlsplit(route.request.url).path
    if path.startswith("/static/"):
        found = finders.find(path.removeprefix("/static/"))
        assert found is not None, path
        route.fulfill(path=found)
        return
    answer = route.fetch(max_redirects=0)
    route.fulfill(response=answer, headers={**answer.headers, "content-security-policy": POLICY})


@pytest.fixture
def strict(served, chromium, operator):
    """The operator's browser; what the policy stops fails the test."""
    opened = Console(chromium, served)
    opened.context.add_init_script(TELL)
    opened.context.route("**/*", _answer)
    opened.sign_in(operator)
    yield opened
    opened.close()


def test_every_kind_of_page_keeps_a_strict_policy_and_runs_no_text(strict, driver):
    """G07: no inline script, no style attribute, no alert."""
    word = "\"'></pre></script><img src=x onerror=alert(1)><script>alert(1)</script>"
    row = hostile.rows(driver, word)
    limits.set_limits(tenancy.workspace(), tenant_concurrency=5)
    pages = ["/admin/", "/admin/jobs/", "/admin/jobs/job/", "/admin/jobs/job/?state=failed", "/admin/jobs/deadletter/",
             "/admin/jobs/attempt/", "/admin/jobs/key/", "/admin/jobs/key/add/", "/admin/jobs/limits/add/",
             f"/admin/jobs/job/{row['job']}/change/", f"/admin/jobs/job/{row['job']}/history/",
             f"/admin/jobs/attempt/{row['attempt']}/change/", f"/admin/jobs/deadletter/{row['deadletter']}/change/",
             f"/admin/jobs/artifact/{row['artifact']}/change/", f"/admin/jobs/limits/{row['limits']}/change/",
             f"/admin/jobs/deadletter/answer/requeue/?id={row['deadletter']}", "/admin/auth/user/"]
    for path in pages:
        page = strict.open(path)
        assert strict.status == 200, path
        page.wait_for_load_state("networkidle")
        assert strict.faults == [], path
        # The console's own style is there: badges are round.
        assert "Jobsite" in page.inner_text("#header"), path
    page = strict.open("/admin/jobs/job/")
    assert page.evaluate("getComputedStyle(document.querySelector('.state')).borderTopLeftRadius") == "999px"


def test_a_person_requeues_a_selection(strict, driver):
    """From the list over the confirmation to the message, with the mouse."""
    for _ in range(3):
        driver.enqueue()
        driver.fail(driver.claim_one(), retryable=False)
    page = strict.open("/admin/jobs/deadletter/?answer=open")
    page.check("#result_list tbody tr:nth-child(1) .action-select")
    page.check("#result_list tbody tr:nth-child(2) .action-select")
    page.select_option("select[name=action]", "requeue")
    page.click("button[name=index]")
    assert page.inner_text("#content h1") == "Requeue 2 dead letters?"
    page.fill("#id_reason", "the server is back")
    page.click(".submit-row input[type=submit]")
    assert page.inner_text(".messagelist") == "2 requeued."
    assert page.url.endswith("/admin/jobs/deadletter/?answer=open")
    assert page.locator("#result_list tbody tr").count() == 1
    assert DeadLetter.objects.filter(resolution="requeued", resolve_reason="the server is back").count() == 2
    assert Attempt.objects.count() == 3
