"""Every link of the console and the admin leads somewhere, whoever follows it."""

from __future__ import annotations

import re
from collections import deque
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit

import pytest
from django.test import Client

from jobs.models import DeadLetter, Job
from jobs.pages.filters import Filters
from jobs.services import dead_letters, limits, operations, overview, tenancy, timers, workers
from jobs.services.timers import Draft
from jobs.states import State
from jobs.store.matching import Match
from tests.making import in_state
from tests.pages.people import person

_LINK = re.compile(r'<a\b[^>]*?\bhref="([^"]*)"')
_NUMBER = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{16}|\d+")
IN_ALL = 200


@pytest.fixture
def life(driver):
    """A job in each state, letters in two clusters, open and answered, a worker, a limit, an answer to many."""
    # What is queued last: nothing else is claimed in its place.
    for state in set(State) - {State.QUEUED}:
        in_state(driver, state, tenant="acme & sons", target=f"a/{state}?b=1")
    for message in ("disk full", "disk full", "no such file", "\"quoted\" & <b>"):
        driver.enqueue("breaks", tenant="acme & sons")
        driver.fail(driver.claim_one(), message=message, retryable=False)
    first, second, *_ = DeadLetter.objects.order_by("-pk")
    dead_letters.discard(first, by="user:operator", reason="nobody needs it")
    dead_letters.requeue(second, by="user:operator", reason="mended")
    driver.enqueue(tenant="acme & sons", delay_s=60)
    operations.begin("requeue", Match(type="echo"), by="user:operator", reason="mended")
    theirs = tenancy.tenant(tenancy.workspace(), "acme & sons")
    timer = timers.put(theirs, "nightly", Draft("noop", cron="@daily"), by="x")
    timers.run_now(timer, by="x")
    workers.register("w", 2, ["default"], ["collect"], ["echo@1"])
    limits.set_limits(tenancy.workspace(), tenant_concurrency=5)
    overview.look.forget()
    yield
    overview.look.forget()


def kind(address: str) -> str:
    """An address without what differs from row to row: of its query the words, of the admin's many filters nothing."""
    parts = urlsplit(address)
    if parts.path.startswith("/admin/"):
        return _NUMBER.sub("*", parts.path) + "?"
    return _NUMBER.sub("*", parts.path) + "?" + "&".join(sorted({name for name, _ in parse_qsl(parts.query)}))


def crawl(client: Client, start: str) -> dict[str, int]:
    """The status of each address that pages lead to, beginning with `start`; the first of each kind."""
    found: dict[str, int] = {}
    kinds: set[str] = set()
    ahead = deque([start])
    while ahead and len(found) < IN_ALL:
        here = ahead.popleft()
        if kind(here) in kinds:
            continue
        kinds.add(kind(here))
        answer: Any = client.get(here)
        found[here] = answer.status_code
        if answer.status_code == 200 and answer["Content-Type"].startswith("text/html"):
            for link in map(unescape, _LINK.findall(answer.content.decode())):
                to = urljoin(here, link).partition("#")[0]
                if not urlsplit(to).netloc and not to.startswith("/admin/logout"):
                    ahead.append(to)
    return found


@pytest.mark.parametrize("who", ["operator", "viewer", "colleague"])
def test_every_link_leads_somewhere(client, life, who):
    """Nobody is shown a link that answers 403, 404 or 500: the operator, and people who may look and little else."""
    holds = {"viewer": ("view_job",), "colleague": ("view_job", "requeue_job", "view_payload")}
    client.force_login(person(who, *holds.get(who, ()), superuser=who == "operator", staff=who != "viewer"))
    found = crawl(client, "/")
    assert len(found) < IN_ALL, "not all was looked at"
    assert {at: status for at, status in found.items() if status not in (200, 302)} == {}
    shown = {kind(at) for at in found}
    assert {"/?", "/jobs/?", "/jobs/*/?", "/dead-letters/*/?", "/workers/?", "/timers/*/?"} <= shown
    assert ("/admin/jobs/job/?" in shown) == (who != "viewer")


def test_links_to_the_list_of_jobs_use_filters_that_it_knows(client, life):
    """An unknown word in its URL would be passed over, and the list show more than was meant."""
    client.force_login(person("viewer", "view_job", staff=False))
    failed = Job.objects.filter(dead_letters__isnull=False).latest("pk")
    pages = ["/", f"/jobs/{failed.pk}/", f"/dead-letters/{DeadLetter.objects.latest('pk').pk}/"]
    links = [unescape(link) for page in pages for link in _LINK.findall(client.get(page).content.decode())]
    into = [urlsplit(link) for link in links if link.startswith("/jobs/?")]
    assert len(into) >= len(pages)
    for link in into:
        assert {name for name, _ in parse_qsl(link.query)} <= set(Filters.base_fields), link


def test_a_failed_job_its_letter_and_what_failed_alike_lead_to_each_other(client, life):
    """In one click each: job, letter, cluster; and from the overview to the cluster that grew most."""
    client.force_login(person("viewer", "view_job", staff=False))
    letter = DeadLetter.objects.filter(resolved_at=None).exclude(cluster=None).latest("pk")

    def links(page: str) -> set[str]:
        return {unescape(link) for link in _LINK.findall(client.get(page).content.decode())}

    alike = f"/dead-letters/list/?cluster={letter.cluster}"
    assert {f"/dead-letters/{letter.pk}/", alike} <= links(f"/jobs/{letter.job_id}/")
    assert {f"/jobs/{letter.job_id}/", alike} <= links(f"/dead-letters/{letter.pk}/")
    assert f"/dead-letters/{letter.pk}/" in links(alike)
    assert alike in links("/")


def test_whoever_may_see_nothing_is_not_led_in_a_circle(client, database):
    """The page that refuses offers another login, not the overview that refuses again."""
    client.force_login(person("nobody", staff=False))
    refused = client.get("/")
    assert refused.status_code == 403
    assert 'class="button" href="/login/"' in refused.content.decode()
    assert client.get("/login/").status_code == 200
