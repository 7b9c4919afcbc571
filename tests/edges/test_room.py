"""The room in which runners wait, by itself: who is served, in which order, and by how many looks (C31)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from jobs.live import room as rooms
from jobs.live.access import TooMany
from jobs.live.room import Looked, Room


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """Nothing is heard but what a test says."""
    async def nothing(on_wake: Callable[[], None]) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(rooms.bridge, "wakes", nothing)
    monkeypatch.setattr(rooms, "REST_S", 0.01)


class Store:
    """What there is to claim, and what was looked for."""

    def __init__(self) -> None:
        self.jobs: list[str] = []
        self.looks = 0

    def look(self, items: Any) -> Looked:
        self.looks += 1
        answers = [self.jobs.pop(0) if self.jobs else None for _ in items[:100]] + [None] * len(items[100:])
        return Looked(answers, None not in answers[:100])


def run(work: Callable[[Room], Coroutine[Any, Any, None]]) -> None:
    async def alone() -> None:
        room = Room()
        try:
            await asyncio.wait_for(work(room), 30)
        finally:
            room.stop()

    asyncio.run(alone())


def enter(room: Room, store: Store, n: int, *, line: str = "a", seconds: float = 20, holder: str | None = None,
          left: asyncio.Event | None = None, lost: Callable[[Any], object] = lambda answer: None) -> asyncio.Task[Any]:
    return asyncio.create_task(room.wait(line, n, store.look, holder=holder or f"key:{n}", seconds=seconds,
                                         left=left or asyncio.Event(), lost=lost))


async def quiet(room: Room) -> None:
    while any(line.due or line.looking for line in room.lines.values()):
        await asyncio.sleep(0.005)


def test_one_job_costs_a_look_or_two_however_many_wait_and_the_first_gets_it(settings):
    """C31, RELIABILITY 5.8: no herd of two hundred for one job."""
    async def work(room: Room) -> None:
        store = Store()
        waits = [enter(room, store, n) for n in range(200)]
        await asyncio.sleep(0.05)
        await quiet(room)
        before, store.jobs = store.looks, ["one"]
        room.wake()
        assert await waits[0] == "one"
        await quiet(room)
        assert store.looks - before <= 2
        assert not any(one.done() for one in waits[1:])
        store.jobs = [str(n) for n in range(199)]
        room.wake()
        # In the order in which they came.
        assert await asyncio.gather(*waits[1:]) == [str(n) for n in range(199)]
        assert not room.lines

    run(work)


def test_a_flood_of_wakes_is_a_look_now_and_then(settings, monkeypatch):
    """C31: what brought nothing rests; two lines are looked for apart."""
    monkeypatch.setattr(rooms, "REST_S", 0.2)

    async def work(room: Room) -> None:
        store = Store()
        waits = [enter(room, store, n, line=str(n % 2), seconds=1) for n in range(10)]
        for _ in range(100):
            room.wake()
            await asyncio.sleep(0.005)
        assert store.looks <= 14
        assert await asyncio.gather(*waits) == [None] * 10

    run(work)


def test_what_a_look_brings_to_one_who_has_left_is_handed_to_its_undoing(settings):
    """C31: while the look was under way; who only ran out of time is waited for and gets it."""
    import threading

    go, lost = threading.Event(), []

    def slowly(items: Any) -> Looked:
        go.wait(10)
        return Looked([f"for {item}" for item in items], False)

    async def work(room: Room) -> None:
        left, store = asyncio.Event(), Store()
        store.look = slowly  # type: ignore[method-assign]
        gone, late = enter(room, store, 1, left=left, lost=lost.append), enter(room, store, 2, seconds=0.1)
        await asyncio.sleep(0.3)
        left.set()
        await asyncio.sleep(0.05)
        go.set()
        assert await gone is None
        assert await late == "for 2"
        while not lost:
            await asyncio.sleep(0.005)

    run(work)
    assert lost == ["for 1"]


def test_a_look_that_fails_is_tried_again_and_a_refusal_is_everybodys(settings, monkeypatch):
    """case-C07: a database that is away for a moment is no answer."""
    monkeypatch.setattr(rooms, "TROUBLE_S", 0.05)
    faults: list[Exception] = [OSError("away"), OSError("away")]

    async def work(room: Room) -> None:
        store = Store()

        def look(items: Any) -> Looked:
            if faults:
                raise faults.pop()
            return Store.look(store, items)

        store.jobs, store.look = ["one"], look  # type: ignore[method-assign]
        assert await enter(room, store, 1) == "one"
        faults.append(TooMany("no"))
        with pytest.raises(TooMany):
            await enter(room, store, 2)

    run(work)


def test_a_key_has_so_many_places_and_a_room_that_closes_lets_everybody_go(settings):
    """RELIABILITY 6.2: 429 for one more; nobody waits where the process ends."""
    settings.JOBS = {**settings.JOBS, "WAITS_PER_KEY": 2, "LIVE_MOST": 3}

    async def work(room: Room) -> None:
        store = Store()
        waits = [enter(room, store, n, holder="key:1") for n in range(2)]
        await asyncio.sleep(0.05)
        with pytest.raises(TooMany):
            await enter(room, store, 3, holder="key:1")
        waits.append(enter(room, store, 4))
        await asyncio.sleep(0.05)
        with pytest.raises(TooMany):
            await enter(room, store, 5)
        room.close()
        assert await asyncio.gather(*waits) == [None] * 3
        assert await enter(room, store, 6) is None

    run(work)


def test_who_comes_first_when_the_process_ends_is_let_go_at_once(settings):
    """C31: its request was on its way when the room closed, which nobody had entered before."""
    async def late() -> None:
        rooms.close_all()
        assert await asyncio.wait_for(rooms.room().wait("a", "x", Store().look, holder="key", seconds=20,
                                                        left=asyncio.Event()), 5) is None
        rooms.room().stop()

    asyncio.run(late())
