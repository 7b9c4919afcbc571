"""One leader a duty, by a lease in a row: believed no longer than it lasts, taken over, and never waited for."""

from __future__ import annotations

import pytest

from jobs import clock
from jobs.models import Leader
from jobs.services import leaders
from jobs.services.leaders import Leadership
from jobs.store import leading
from tests import database as db
from tests.races.threads import elsewhere, together

DUTY = "a duty"


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The steady clock of this process, moved by hand."""
    now = [1_000.0]
    monkeypatch.setattr(leaders.clock, "monotonic", lambda: now[0])
    return now


def candidate(**leases: float) -> Leadership:
    return Leadership(leases or {DUTY: 10.0})


def test_the_first_who_asks_leads_until_it_gives_back(database: None) -> None:
    """E2: renewed by its holder, refused to others, free at once after an orderly end."""
    first, second = candidate(), candidate()
    for here in (first, second, first, second):
        here.renew()
    assert (first.leads(DUTY), second.leads(DUTY)) == (True, False)
    first.resign()
    assert not first.leads(DUTY)
    second.renew()
    assert second.leads(DUTY)
    first.renew()
    assert not first.leads(DUTY)


def test_duties_are_led_one_by_one(database: None) -> None:
    """E2: what one process does not want, or has given back, another leads."""
    first, second = candidate(a=10.0), candidate(a=10.0, b=10.0)
    first.renew()
    second.renew()
    assert [(x.leads("a"), x.leads("b")) for x in (first, second)] == [(True, False), (False, True)]


def test_a_dead_leaders_lease_runs_out(database: None) -> None:
    """case-F06: nothing else is needed; until then nobody takes it."""
    candidate().renew()
    other = candidate()
    db.pass_time(9)
    other.renew()
    assert not other.leads(DUTY)
    db.pass_time(2)
    other.renew()
    assert other.leads(DUTY)


def test_a_leader_that_cannot_renew_stands_down_before_its_lease_ends(database: None, steady: list[float]) -> None:
    """case-E05: by its own steady clock, counted from before it asked."""
    here = candidate()
    here.renew()
    steady[0] += 8.9
    assert here.leads(DUTY)
    steady[0] += 0.2
    assert not here.leads(DUTY)
    assert Leader.objects.get().until > clock.now()


def test_a_lease_counts_from_before_it_was_asked_for(
        database: None, steady: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """case-E05: an answer that took longer than the lease makes no leader."""
    take = leading.take

    def slow(*args: object) -> dict[str, bool]:
        answer = take(*args)  # type: ignore[arg-type]
        steady[0] += 11
        return answer

    monkeypatch.setattr(leading, "take", slow)
    here = candidate()
    here.renew()
    assert not here.leads(DUTY)


def test_a_leader_that_was_replaced_knows_it_with_its_next_renewal(database: None, steady: list[float]) -> None:
    """case-E05: frozen beyond its lease, say, while its own clock stood still; no trust is left over."""
    old, new = candidate(), candidate()
    old.renew()
    db.pass_time(11)
    new.renew()
    assert old.leads(DUTY)
    old.renew()
    assert (old.leads(DUTY), new.leads(DUTY)) == (False, True)


def test_a_lease_in_the_far_future_keeps_nobody_out(database: None) -> None:
    """E8: written by a dead leader before the clock was set back."""
    db.pass_time(100_000)
    candidate().renew()
    db.pass_time(-100_000)
    other = candidate()
    other.renew()
    assert other.leads(DUTY)


def test_a_locked_row_is_neither_waited_for_nor_lost(database: None) -> None:
    """DESIGN 4: whoever writes it at this moment; the leader goes on as far as its lease goes."""
    here, other = candidate(), candidate()
    here.renew()
    with elsewhere("SELECT 1 FROM jobs_leader FOR NO KEY UPDATE"):
        here.renew()
        assert here.leads(DUTY)
        db.pass_time(11)
        other.renew()
        assert not other.leads(DUTY)
    other.renew()
    assert other.leads(DUTY)


def test_rounds_are_noted_and_recovery_notes_its_own(database: None) -> None:
    """E8: gaps in recovery's rounds are judged by the row, so nothing else may write there that one was done."""
    here = candidate(recovery=10.0, other=10.0)
    here.renew()
    here.ticked("recovery")
    here.ticked("other")
    here.renew()
    noted = dict(Leader.objects.values_list("duty", "ticked_at"))
    assert noted["other"] is not None
    assert noted["recovery"] is None
    db.pass_time(5)
    here.renew()
    assert Leader.objects.get(duty="other").ticked_at == noted["other"]


def test_an_emptied_table_is_filled_again(database: None) -> None:
    """A test's flush, say, while a process runs."""
    here = candidate()
    here.renew()
    Leader.objects.all().delete()
    for _ in range(2):
        here.renew()
    assert Leader.objects.get().holder == here.holder


def test_of_many_that_ask_at_once_one_leads(database: None) -> None:
    """case-E04, E06: eight at the same moment, nobody waits, nothing deadlocks."""
    for n in range(20):
        here = [candidate(**{f"{n}-{d}": 10.0 for d in range(5)}) for _ in range(8)]
        together([x.renew for x in here])
        for x in here:
            x.renew()
        assert all(sum(x.leads(f"{n}-{d}") for x in here) == 1 for d in range(5))


def test_renewals_are_rewritten_in_place(database: None) -> None:
    """DESIGN 5: once a second for ever; no index entry is left behind."""
    seen = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'jobs_leader'"
    here = candidate(**{str(n): 10.0 for n in range(8)})
    here.renew()
    db.rows("SELECT pg_stat_force_next_flush()")
    before = db.rows(seen)[0]
    for _ in range(50):
        here.renew()
    db.rows("SELECT pg_stat_force_next_flush()")
    after = db.rows(seen)[0]
    updated, hot = after[0] - before[0], after[1] - before[1]
    assert updated >= 400
    assert hot >= updated * 0.9

