"""Where callbacks go, and that a stranger's address leads nowhere else (case-I04, RELIABILITY 6.2: SSRF)."""

from __future__ import annotations

import gzip
import ipaddress
import socket
import ssl
import time

import pytest

from jobs.callbacks import Policy, is_public
from jobs.errors import Invalid
from jobs.models import Job
from jobs.services import intake, sending
from tests.services.calling import allowing, rows_of, send, url
from tests.sinks import OK, Sink, authority, dripping, flooding, slowly, status

# Sixty forms of an address that must not be reached; {p} is the port of a sentinel on loopback.
REFUSED = [
    "http://127.0.0.1:{p}/", "https://127.0.0.1:{p}/", "https://127.0.0.1/", "https://127.1/", "https://127.0.1/",
    "https://0x7f000001/", "https://0x7f.0.0.1/", "https://0177.0.0.1/", "https://2130706433/", "https://017700000001/",
    "https://0/", "https://0.0.0.0/", "https://[::]/", "https://[::1]/", "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:7f00:1]/", "https://[::127.0.0.1]/", "https://[0:0:0:0:0:ffff:7f00:0001]/",
    "https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/", "https://[2001:0:7f00:1::]/", "https://[fe80::1]/",
    "https://[fe80::1%25lo]/", "https://[fc00::1]/", "https://[fd12:3456::1]/", "https://[fec0::1]/",
    "https://[ff02::1]/", "https://10.0.0.1/", "https://172.16.0.1/", "https://192.168.1.1/", "https://100.64.0.1/",
    "https://169.254.169.254/latest/meta-data/", "https://224.0.0.1/", "https://240.0.0.1/", "https://255.255.255.255/",
    "https://192.0.2.1/", "https://198.18.0.1/", "https://localhost/", "https://LOCALHOST:{p}/", "https://localhost./",
    "https://a.localhost/", "https://printer.local/", "https://metadata.google.internal/", "https://intranet/",
    "https://127.0.0.1./", "https://example.com@127.0.0.1/", "https://user:pw@example.com/", "https://@127.0.0.1/",
    "https://127.0.0.1\\@example.com/", "https://example.com\\@127.0.0.1/", "https://example.com:22/",
    "https://example.com:5432/", "https://example.com:{p}/", "https://example.com:99999/", "https://exam\tple.com/",
    "https://example.com/\r\nX: 1", "https://\u2488\u24bb.example/", "https://\uff11\uff12\uff17.0.0.1/",
    "file:///etc/passwd", "gopher://127.0.0.1:{p}/_x", "//127.0.0.1/", "https:///path", "https://", "",
    "ftp://example.com/", "https://example.com/#@127.0.0.1",
]


@pytest.fixture
def sentinel():
    with Sink() as sink:
        yield sink
        assert sink.connections == 0


def test_there_are_sixty_forms() -> None:
    """RELIABILITY 6.5.3."""
    assert len(set(REFUSED)) >= 60


def test_no_form_of_an_inner_address_passes_the_enqueue(driver, sentinel, monkeypatch) -> None:
    """case-I04: refused with its field before anything is written; nobody is connected to and no name looked up."""
    monkeypatch.setattr(socket, "getaddrinfo", None)
    for form in REFUSED:
        with pytest.raises(Invalid) as refused:
            intake.enqueue("echo", {}, callback_url=form.format(p=sentinel.port))
        assert (refused.value.field, refused.value.reason_code) == ("callback_url", "invalid_callback_url"), form
    assert Job.objects.count() == 0


def test_none_of_them_is_connected_to_where_the_check_at_the_enqueue_did_not_happen(driver, sentinel, settings) -> None:
    """case-I04: checked at each send, too: rows of another release, or of a site whose rules were others."""
    settings.JOBS = {**settings.JOBS, "CALLBACKS": True}
    for form in REFUSED:
        job_id = driver.enqueue(callback_url="https://example.com/")
        Job.objects.filter(pk=job_id).update(callback_url=form.format(p=sentinel.port))
        driver.cancel(job_id)
        send(driver, 1)
        [row] = rows_of(job_id)
        assert (row.state, row.code, row.http_status) == ("failed", "address_refused", None), form


@pytest.mark.parametrize("form", ["https://example.com", "https://EXAMPLE.com:8443/a?b=c", "https://93.184.216.34/",
                                  "https://[2606:2800:220:1:248:1893:25c8:1946]/x", "https://xn--bcher-kva.example/"])
def test_public_addresses_are_taken(form) -> None:
    """E11: names in ASCII, addresses written in full, ports 443 and 8443."""
    assert Policy().target(form).port in (443, 8443)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111"])
def test_addresses_of_the_internet_are_public(address) -> None:
    """RELIABILITY 6.2."""
    assert is_public(ipaddress.ip_address(address))


def test_a_site_may_allow_hosts_ports_and_networks_of_its_own() -> None:
    """E11: for those who host themselves; each entry opens no more than it says."""
    policy = Policy(("10.1.0.0/16", "hooks.intranet", "127.0.0.1:9000", "[::1]:9001", "fd00::/8"))
    assert policy.target("https://10.1.2.3/").host == "10.1.2.3"
    assert policy.target("https://hooks.intranet/").host == "hooks.intranet"
    assert policy.permits("hooks.intranet", "10.9.9.9")
    assert policy.permits("anything.example", "10.1.9.9")
    assert not policy.permits("anything.example", "10.2.0.1")
    assert policy.target("https://127.0.0.1:9000/").port == 9000
    assert policy.target("https://[::1]:9001/").port == 9001
    for closed in ("https://10.2.0.1/", "https://other.intranet/", "https://127.0.0.1:9001/", "http://10.1.2.3/"):
        with pytest.raises(Invalid):
            policy.target(closed)
    for entry in ("http://x", "a b", "10.0.0.0/99", "", "host:port"):
        with pytest.raises(Invalid):
            Policy((entry,)).check()


# --- what a name leads to --------------------------------------------------------------------------------------------


def resolving(monkeypatch, *answers):
    """`socket.getaddrinfo` that answers these in turn, the last one ever after; what it was asked for."""
    asked, left, real = [], list(answers), socket.getaddrinfo

    def look(host, port, *args, **more):
        if host != "hooks.example":
            return real(host, port, *args, **more)
        asked.append(host)
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return [(socket.AF_INET6 if ":" in a else socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, port)) for a in found]

    monkeypatch.setattr(socket, "getaddrinfo", look)
    return asked


@pytest.mark.parametrize("found", [["127.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["10.0.0.1"], ["::1"], ["169.254.169.254"],
                                   ["::ffff:127.0.0.1"], ["8.8.8.8", "fd00::1"]])
def test_a_name_with_any_inner_address_is_not_connected_to(monkeypatch, sentinel, found) -> None:
    """case-I04: all of them are looked at."""
    resolving(monkeypatch, found)
    policy = Policy((f"hooks.example.org:{sentinel.port}",))
    answer = sending.post(policy.target("https://hooks.example/"), b"{}", {}, policy)
    assert (answer.code, answer.status) == ("address_refused", None)


def test_a_name_that_changes_between_two_looks_is_looked_at_once(monkeypatch, settings) -> None:
    """case-I04: DNS that flips; what was judged is what is connected to, and the host is named in the request."""
    with Sink() as sink:
        asked = resolving(monkeypatch, ["127.0.0.1"], ["127.0.0.2"])
        policy = Policy((f"hooks.example:{sink.port}",), http=True)
        answer = sending.post(policy.target(f"http://hooks.example:{sink.port}/"), b"{}", {}, policy)
        assert (answer.code, answer.status, len(asked)) == (None, 200, 1)
        assert sink.got[0].headers["host"] == f"hooks.example:{sink.port}"


def test_a_name_that_nobody_knows_and_one_whose_look_up_hangs_are_failures_in_time(monkeypatch) -> None:
    """E11: five seconds in all, the look-up among them."""
    policy = Policy()
    resolving(monkeypatch, socket.gaierror("no"))
    assert sending.post(policy.target("https://hooks.example/"), b"", {}, policy).code == "host_not_found"
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: time.sleep(1.5) or [])
    assert sending.post(policy.target("https://hooks.example/"), b"", {}, policy, 0.3).code == "timeout"


def test_a_redirect_is_a_failure_and_is_not_followed(settings, sentinel) -> None:
    """case-I04: wherever it would lead, and nothing of ours goes there."""
    for number in (301, 302, 303, 307, 308):
        with Sink(status(number, f"Location: http://127.0.0.1:{sentinel.port}/")) as sink:
            answer = _post(sink)
            assert (answer.code, answer.status) == ("redirected", number)


def test_no_proxy_of_the_environment_is_asked(monkeypatch, sentinel) -> None:
    """E11."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{sentinel.port}")
    with Sink() as sink:
        assert _post(sink).code is None


# --- hostile receivers -----------------------------------------------------------------------------------------------


def _post(sink, timeout_s=5.0, **headers):
    policy = Policy((f"127.0.0.1:{sink.port}",), http=True)
    return sending.post(policy.target(url(sink)), b'{"a":1}', headers, policy, timeout_s)


BOMB = gzip.compress(b"\x00" * 5_000_000)


@pytest.mark.parametrize(("answer", "code", "shown"), [
    (dripping(b"HTTP/1.1 200 OK\r\n\r\n"), None, "x"),
    (dripping(b"HTTP/1.1 20"), "timeout", None),
    (dripping(b"HTTP/1.1 200 OK\r\nX: "), "timeout", None),
    (flooding(b"HTTP/1.1 200 OK\r\n\r\n"), None, "\ufffd"),
    (flooding(b"HTTP/1.1 200 OK\r\nX: "), "no_answer", None),
    (status(200, "Content-Encoding: gzip", body=BOMB), None, "\x1f"),
    (status(500, body=b"<script>alert(1)</script>"), "http_500", "<script>alert(1)</script>"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\nab", None, "ab"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nab", "no_answer", None),
    (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, None, "ok"),
    (b"HTTP/1.1 100 Continue\r\n\r\n" * 9, "no_answer", None),
    (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "no_answer", None),
    (b"HTTP/1.1 abc Strange\r\n\r\n", "no_answer", None),
    (b"HTTP/1.1 99999 Strange\r\n\r\n", "no_answer", None),
    (b"HTTP/9.9 200 OK\r\n\r\n", "no_answer", None),
    (b"\x00" * 100, "no_answer", None),
    (b"", "no_answer", None),
    (slowly(9), "timeout", None),
])
def test_a_hostile_receiver_gets_its_time_and_its_bytes_and_no_more(answer, code, shown) -> None:
    """RELIABILITY API10: slow drips, floods, bombs and nonsense are bounded, and kept as text at most."""
    with Sink(answer) as sink:
        began = time.monotonic()
        got = _post(sink, 0.5)
        assert time.monotonic() - began < 5
        assert got.code == code
        assert (got.text or "")[: len(shown or "")] == (shown or "")
        assert len(got.text or "") <= 1_024


def test_a_closed_port_is_a_failure() -> None:
    """E11."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        policy = Policy((f"127.0.0.1:{free.getsockname()[1]}",), http=True)
        target = policy.target(f"http://127.0.0.1:{free.getsockname()[1]}/")
    assert sending.post(target, b"", {}, policy).code == "not_connected"


def test_tls_is_checked_by_the_name_of_the_host(tmp_path, monkeypatch) -> None:
    """E11: a good certificate of another name, or of nobody's authority, is refused before anything is said."""
    for name, trusted, code in (("127.0.0.1", True, None), ("other.example", True, "tls_certificate"),
                                ("127.0.0.1", False, "tls_certificate")):
        context, certificate = authority(tmp_path, name)
        ours = ssl.create_default_context(cafile=certificate if trusted else None)
        monkeypatch.setattr(sending, "trust", lambda ours=ours: ours)
        with Sink(context=context) as sink:
            policy = Policy((f"127.0.0.1:{sink.port}",))
            answer = sending.post(policy.target(url(sink, scheme="https")), b"{}", {}, policy)
            assert answer.code == code
            assert len(sink.got) == (code is None)


def test_plain_http_in_a_tls_port_is_a_failure(monkeypatch) -> None:
    """E11."""
    with Sink() as sink:
        policy = Policy((f"127.0.0.1:{sink.port}",))
        answer = sending.post(policy.target(url(sink, scheme="https")), b"{}", {}, policy, 2.0)
        assert answer.code in ("tls_failed", "no_answer", "not_connected", "timeout")


def test_one_slow_receiver_does_not_hold_others_up(driver, settings) -> None:
    """case-I02: while two wait for it, others are told."""
    import threading

    from tests.services.calling import claim, run

    with Sink(slowly(3)) as slow, Sink() as well:
        allowing(settings, slow, CALLBACK_ALLOW=[f"127.0.0.1:{slow.port}", f"localhost:{well.port}"])
        for _ in range(4):
            driver.cancel(driver.enqueue(callback_url=url(slow)))
        for _ in range(4):
            driver.cancel(driver.enqueue(callback_url=f"http://localhost:{well.port}/"))
        jobs = claim(driver, 10)
        assert len(jobs) == 4
        threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        while len(well.got) < 2:
            assert time.monotonic() - began < 2.5
            time.sleep(0.01)
        for thread in threads:
            thread.join()
        assert slow.most <= 2
