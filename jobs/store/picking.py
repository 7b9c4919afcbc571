"""What one claim has gathered, and its judgement of each candidate: taken, left for now, or out of the way.

A candidate may count under its exclusive group, its owner and its tenant; each cap's key is locked before its count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from jobs.store import admission, owning, voiding
from jobs.store.owning import OWNER, Standing

NEVER = 1 << 60

Pair = tuple[str, str]  # worker group, queue
Candidate = tuple[str, int, str | None, str]  # id, tenant, exclusive group, credential


@dataclass(slots=True)
class Line:
    """A tenant's line of one pair as the claim reads it; `room` is how many more jobs its tenant may run."""

    id: int
    workspace_id: int
    tenant_id: int
    cap: int | None
    group_max: int | None
    group_scope: str
    room: int = NEVER
    key: int | None = None


@dataclass
class Picked:
    """What a claim has gathered so far."""

    left: int
    ids: list[str] = field(default_factory=list)
    caps: list[tuple[str, int]] = field(default_factory=list)
    met: set[str] = field(default_factory=set)
    rooms: dict[str, tuple[int, int]] = field(default_factory=dict)
    # By tenant under a cap: what this claim took for an earlier pair is not counted by any row yet.
    taken: dict[int, int] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)
    again: bool = False
    # By tenant: None for one without an owner. Missing: not asked for yet, or left alone.
    owners: dict[int, Standing | None] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)
    bindings: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class _Aside:
    """What a helping puts out of the way: jobs of full groups, and by tenant those whose owner is full or missing."""

    held: list[str] = field(default_factory=list)
    full: dict[int, list[str]] = field(default_factory=dict)
    lost: dict[int, list[str]] = field(default_factory=dict)


def judge(pair: Pair, found: Sequence[Candidate], lines: dict[int, Line], by: str, picked: Picked) -> dict[int, int]:
    """Take what may be taken of these candidates, locked by us; how many each tenant had, whether taken or not."""
    had = dict.fromkeys(lines, 0)
    grouped = [(group, lines[t]) for _, t, group, _ in found if group and lines[t].group_max is not None]
    if grouped:
        _ask_groups(grouped, picked)
    owned = {t for _, t, _, credential in found if credential == OWNER} - picked.asked
    if owned:
        _ask_owners(owned, picked)
    aside = _Aside()
    for id_, tenant, group, credential in found:
        had[tenant] += 1
        _consider(id_, lines[tenant], group, credential, picked, aside)
    if aside.held:
        admission.hold(aside.held)
        picked.again = True
    for tenant in sorted(aside.full | aside.lost):
        _put_aside(pair, lines[tenant], aside, by, picked)
    return had


def _ask_groups(grouped: Iterable[tuple[str, Line]], picked: Picked) -> None:
    names = {admission.group_key(x.group_scope, x.workspace_id, x.tenant_id, g) for g, x in grouped}
    unknown = names - picked.rooms.keys() - picked.busy
    if unknown:
        used = admission.usage(unknown)
        picked.rooms.update(used)
        picked.busy |= unknown - used.keys()


def _ask_owners(tenants: set[int], picked: Picked) -> None:
    keys = admission.tried(owning.owner_key(t) for t in tenants)
    mine = {t: keys[owning.owner_key(t)] for t in tenants if owning.owner_key(t) in keys}
    picked.owners.update(owning.standing(mine) if mine else {})
    picked.asked |= tenants


def _put_aside(pair: Pair, line: Line, aside: _Aside, by: str, picked: Picked) -> None:
    """The owner's jobs at the head of this line, some at a time: behind the gate, or paused for want of one (B35)."""
    lost = aside.lost.get(line.tenant_id)
    met = lost or aside.full[line.tenant_id]
    ids = met + owning.heads(pair, line.tenant_id, picked.met)
    if lost:
        voiding.pause(ids, by)
    else:
        admission.hold(ids)
    picked.again = True
    if len(ids) >= owning.ASIDE // 2:
        # There is more of them than one claim should move; the tenant's other jobs have the next one.
        line.room = 0


def _consider(id_: str, line: Line, group: str | None, credential: str, picked: Picked, aside: _Aside) -> None:
    if picked.left <= 0 or line.room <= 0:
        return
    picked.met.add(id_)
    owner = None
    if credential == OWNER and (owner := _owner(id_, line, picked, aside)) is None:
        return
    if group is not None and line.group_max is not None:
        name = admission.group_key(line.group_scope, line.workspace_id, line.tenant_id, group)
        if name in picked.busy:
            return
        key, used = picked.rooms[name]
        if used >= line.group_max:
            aside.held.append(id_)
            return
        picked.rooms[name] = (key, used + 1)
        picked.caps.append((id_, key))
    if owner is not None:
        owner.room -= 1
        picked.caps.append((id_, owner.key))
        picked.bindings.append((id_, owner.binding))
    if line.key is not None:
        line.room -= 1
        picked.taken[line.tenant_id] = picked.taken.get(line.tenant_id, 0) + 1
        picked.caps.append((id_, line.key))
    picked.ids.append(id_)
    picked.left -= 1


def _owner(id_: str, line: Line, picked: Picked, aside: _Aside) -> Standing | None:
    """Under whom this tenant's job may run now; else it is put aside, if nobody else is at its owner."""
    if line.tenant_id not in picked.owners:
        return None
    owner = picked.owners[line.tenant_id]
    if owner is not None and owner.room > 0:
        return owner
    (aside.lost if owner is None else aside.full).setdefault(line.tenant_id, []).append(id_)
    return None
