"""Who may follow, from where and for how long (RELIABILITY 6.2: cross-site websocket; case-H06; C25)."""

from __future__ import annotations

import time

import pytest
from django.contrib.sessions.models import Session

from jobs.models import Key, Tenant
from jobs.services import cancellation, keys, tenancy
from tests import database as db
from tests.edges.caller import Caller
from tests.edges.sockets import Net, Refused, net
from tests.edges.test_live import bearer, cookie
from tests.pages.people import person
from tests.pages.site import server
from tests.worker.processes import until

# Not a browser's business, so that a page of another site gets nothing by them.
CALLER, CONSOLE = "/api/v1/live", "/live/site/"


@pytest.fixture(scope="module")
def process(django_db_setup):
    with server(JOBS_LIVE_CHECK_S="0.3", JOBS_LIVE_PER_HOLDER="5") as started:
        yield started


@pytest.fixture
def wires(process, driver):
    with net(process[0]) as made:
        yield made


def opened(wires: Net, path: str, **headers: str) -> int | str:
    """The status of a refused handshake, the code of a close, or the first frame's type."""
    try:
        client = wires.connect(path, **headers)
    except Refused as error:
        return error.status
    frame = wires.take(client)
    return wires.end(client) if frame["type"] == "error" else frame["type"]


ORIGINS = {
    "ours": ("http://127.0.0.1:{port}", True), "evil": ("https://evil.example", False), "null": ("null", False),
    "suffix": ("http://127.0.0.1.evil.example:{port}", False), "prefix": ("http://evil-127.0.0.1:{port}", False),
    "port": ("http://127.0.0.1:1", False), "userinfo": ("http://127.0.0.1:{port}@evil.example", False),
    "allowed, but another host": ("http://localhost:{port}", False), "none": (None, False),
}


@pytest.mark.parametrize("origin", ORIGINS)
def test_the_console_is_for_its_own_pages_and_keys_need_no_origin(wires, origin):
    """case-H06: cookies count from our own pages alone; a key counts from anywhere, and a cookie beside it never."""
    said, ours = ORIGINS[origin]
    told = {} if said is None else {"Origin": said.format(port=wires.port)}
    session = {"Cookie": cookie(wires, person("operator", superuser=True))["Cookie"]}
    caller = Caller()
    assert opened(wires, CONSOLE, **told, **session) == ("init" if ours else 403)
    assert opened(wires, CONSOLE, **told) == (4401 if ours else 403)
    assert opened(wires, CONSOLE, **told, **bearer(caller)) == (4401 if ours else 403)
    assert opened(wires, CALLER, **told, **bearer(caller)) == "init"
    bare = wires.connect(CALLER, **told, **session)
    wires.send(bare, {"type": "subscribe", "job": "x"})
    assert wires.end(bare) == 4401


def test_unknown_paths_are_refused_and_say_nothing_of_us(wires):
    """Neither an accepted socket nor a traceback."""
    origin = {"Origin": f"http://127.0.0.1:{wires.port}"}
    for path in ("/", "/live/", "/live/jobs/x/", "/live/site", "/api/v1/jobs", "/api/v1/live/", "/api/v1/live/jobs/"):
        with pytest.raises(Refused) as caught:
            wires.connect(path, **origin)
        assert caught.value.status == 403
        assert b"Traceback" not in caught.value.answer


def test_an_address_with_too_many_parameters_is_refused_by_name(wires, driver):
    """Bad input gets a clear error, of strangers too, and leaves no traceback in the log."""
    many = "&".join(f"p{n}=1" for n in range(12))
    for headers in ({}, bearer(Caller())):
        client = wires.connect(f"{CALLER}?{many}", **headers)
        assert (wires.end(client), client.frames[-1]["code"]) == (4400, "invalid_query")
    operator = cookie(wires, person("operator", superuser=True))
    client = wires.connect(f"/live/jobs/{driver.enqueue()}/?{many}", **operator)
    assert (wires.end(client), client.frames[-1]["code"]) == (4400, "invalid_query")


def test_people_without_a_session_or_the_permission_are_told_so(wires):
    """DESIGN 3: pages behind a login, and so is what they follow."""
    assert opened(wires, CONSOLE, **cookie(wires, person("nobody"))) == 4403
    assert opened(wires, CONSOLE, **cookie(wires, person("viewer", "view_job", staff=False))) == "init"
    gone = person("gone", superuser=True)
    session = cookie(wires, gone)
    gone.is_active = False
    gone.save()
    assert opened(wires, CONSOLE, **session) == 4401
    forged = {**session, "Cookie": "sessionid=" + "x" * 32}
    assert opened(wires, CONSOLE, **forged) == 4401
    viewer = cookie(wires, person("viewer", "view_job"))
    assert opened(wires, "/live/jobs/00000000-0000-0000-0000-000000000000/", **viewer) == 4404


def test_a_key_may_come_in_the_first_message_within_five_seconds(wires, driver):
    """Never in the address, where logs would keep it."""
    caller = Caller()
    for message, code in (({"type": "auth", "key": caller.secret}, "init"), ({"type": "auth"}, 4401),
                          ({"type": "auth", "key": 7}, 4401), ({"type": "auth", "key": "a.b"}, 4401),
                          ({"type": "auth", "key": caller.secret, "tenant_subject": "\n"}, 4400),
                          ({"type": "auth", "key": caller.secret, "tenant_subject": "nobody"}, 4404),
                          ({"type": "resume"}, 4401)):
        client = wires.connect(CALLER)
        wires.send(client, message)
        frame = wires.take(client)
        assert (wires.end(client) if frame["type"] == "error" else frame["type"]) == code, message
    for header in ("Bearer", "Bearer x", f"Bearer {caller.secret}x", f"Bearer {caller.key.prefix}.", "Bearer \xff."):
        assert opened(wires, CALLER, Authorization=header) in (4401, 400), header
    assert opened(wires, f"{CALLER}?key={caller.secret}", Authorization="Bearer a.b") == 4401
    late = wires.connect(CALLER)
    begun = time.monotonic()
    assert wires.end(late) == 4408
    assert 4 < time.monotonic() - begun < 15
    reader = Caller(permissions=["enqueue"])
    assert opened(wires, CALLER, **bearer(reader)) == 4403


def test_foreign_and_unknown_jobs_answer_alike_byte_for_byte(wires, driver):
    """C25, E2: also those of the house, and those of another workspace."""
    tenancy.tenant(tenancy.workspace(), "them", make=True)
    theirs = driver.enqueue(tenant="them", job_id="named")
    own = Caller("own", tenant="us")
    elsewhere = Caller("elsewhere", workspace="elsewhere")
    unknown = "01a2299e-67fc-70a3-8a1e-29ab88159fb9"
    for caller in (own, elsewhere):
        answers = []
        for name in (theirs, unknown, "named", "%F0%9F", "x" * 300):
            client = wires.connect(f"{CALLER}/jobs/{name}", **bearer(caller))
            answers.append((wires.end(client), client.frames))
            stream = wires.connect(CALLER, **bearer(caller))
            wires.take(stream)
            wires.send(stream, {"type": "subscribe", "job": name})
            answers.append((4404, [wires.take(stream, "error", "init")]))
            stream.writer.transport.abort()
        assert all(answer == answers[0] for answer in answers), answers
    theirs, nobodys = (wires.connect(CALLER, **bearer(own, subject)) for subject in ("them", "never heard of"))
    assert (wires.end(theirs), theirs.frames) == (wires.end(nobodys), nobodys.frames)
    assert theirs.code == 4404


def test_a_tenants_stream_has_its_own_jobs_and_nobody_elses(wires, driver):
    """C25, E11: neither another tenant's nor the house's own, however the news comes."""
    for subject in ("us", "them"):
        tenancy.tenant(tenancy.workspace(), subject, make=True)
    ours, workspace = Caller("ours", tenant="us"), Caller()
    mine = wires.connect(CALLER, **bearer(ours))
    named = wires.connect(CALLER, **bearer(workspace, "us"))
    untenanted = wires.connect(CALLER, **bearer(workspace))
    for client in (mine, named, untenanted):
        wires.take(client)
    driver.enqueue(tenant="them")
    with_system = driver.enqueue()
    db.rows("UPDATE jobs_job SET worker_group = 'system' WHERE id = %s RETURNING 1", with_system)
    cancellation.cancel(with_system, by="test")
    job_id = driver.enqueue(tenant="us")
    seen = driver.enqueue()
    for client in (mine, named):
        assert wires.take(client, "jobs", "resync")["jobs"] == [{"job": job_id, "number": 1}]
    told = wires.take(untenanted, "jobs", "resync")["jobs"]
    while seen not in {one["job"] for one in told}:
        told += wires.take(untenanted, "jobs", "resync")["jobs"]
    assert {(one["job"], one["number"]) for one in told} <= {(with_system, 1), (seen, 1)}
    for client in (mine, named):
        assert len(client.frames) == client.taken


def test_connections_of_one_holder_are_bounded(wires):
    """RELIABILITY 6.2, WS flood: by a named error; others are not hurt, and a place that is left is free."""
    caller = Caller()
    clients = [wires.connect(CALLER, **bearer(caller)) for _ in range(5)]
    for client in clients:
        wires.take(client)
    sixth = wires.connect(CALLER, **bearer(caller))
    assert wires.end(sixth) == 4429
    assert sixth.frames[-1]["code"] == "too_many_connections"
    assert opened(wires, CALLER, **bearer(Caller())) == "init"
    wires.loop.call_soon_threadsafe(clients[0].reset)
    wires.end(clients[0])
    until(lambda: opened(wires, CALLER, **bearer(caller)) == "init")


def _revoke(caller, user):
    keys.revoke(caller.key.prefix)


def _expire(caller, user):
    Key.objects.filter(pk=caller.key.pk).update(expires_at="2001-01-01T00:00Z")


def _forbid(caller, user):
    Key.objects.filter(pk=caller.key.pk).update(permissions=["enqueue"])
    user.user_permissions.clear()


def _archive(caller, user):
    Tenant.objects.filter(subject="us").update(archived_at="2001-01-01T00:00Z")


def _sign_out(caller, user):
    Session.objects.all().delete()


def _change_password(caller, user):
    user.set_password("another one of these")
    user.save()


@pytest.mark.parametrize(("end", "of_key", "of_session"), [
    (_revoke, 4401, None), (_expire, 4401, None), (_forbid, 4403, 4403), (_archive, 4404, None),
    (_sign_out, None, 4401), (_change_password, None, 4401),
])
def test_what_is_taken_away_ends_what_is_open(wires, driver, end, of_key, of_session):
    """RELIABILITY 6.2: within the interval that the process looks again, 30 s by default and 60 s at most."""
    caller, user = Caller("ours", tenant="us"), person("viewer", "view_job")
    key, session = wires.connect(CALLER, **bearer(caller)), wires.connect(CONSOLE, **cookie(wires, user))
    wires.take(key), wires.take(session)
    end(caller, user)
    for client, code in ((key, of_key), (session, of_session)):
        if code is not None:
            assert wires.end(client) == code
            assert client.frames[-1]["type"] == "error"
    time.sleep(0.5)
    driver.enqueue(tenant="us") if end is not _archive else driver.enqueue()
    for client, code in ((key, of_key), (session, of_session)):
        if code is None:
            assert wires.take(client, "jobs")
    if of_key is not None:
        assert opened(wires, CALLER, **bearer(caller)) == of_key
