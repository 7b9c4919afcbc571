"""What one claim has gathered, and its judgement of each candidate: taken, left for now, or out of the way.

A candidate may count under its exclusive group, its owner and its tenant; each cap's key is locked before its count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from jobs.routing import SYSTEM
from jobs.states import Gate
from jobs.store import admission, owning, throttling, voiding
from jobs.store.owning import OWNER, Standing
from jobs.store.throttling import Rule, Rules

NEVER = 1 << 60

Pair = tuple[str, str]  # worker group, queue
# Id, tenant, exclusive group, credential; the type where one is throttled.
Candidate = tuple[str, int, str | None, str, str | None]


@dataclass(slots=True)
class Line:
    """A tenant's line of one pair as the claim reads it; `room` is how many more jobs its tenant may run."""

    id: int
    workspace_id: int
    tenant_id: int
    cap: int | None
    group_max: int | None
    group_scope: str
    paused: bool
    room: int = NEVER
    key: int | None = None
    # Caps of its queue and worker group, each with its most.
    caps: Sequence[tuple[str, int]] = ()


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
    rules: Rules = throttling.NONE
    # By pair: workspaces of which none may begin a job here for now.
    shut: dict[Pair, set[int]] = field(default_factory=dict)


@dataclass
class _Aside:
    """What a helping puts out of the way: jobs of full groups, and by tenant those whose owner is full or missing, and
    those whose type is full or paused.
    """

    held: list[str] = field(default_factory=list)
    full: dict[int, list[str]] = field(default_factory=dict)
    lost: dict[int, list[str]] = field(default_factory=dict)
    typed: dict[int, list[str]] = field(default_factory=dict)


def admit(pair: Pair, lines: list[Line], picked: Picked) -> list[Line]:
    """Those of a pair's lines that no pause or full cap of the queue, the worker group or the tenant holds back.

    Paused ones leave the rotation; a cap whose key another claimer holds is left to that one.
    """
    if pair[0] == SYSTEM:
        return lines
    rules = picked.rules.of_pair(pair) if picked.rules.places else ()
    if rules:
        if any(r.paused for r in rules if r.workspace_id is None):
            return []
        paused = {r.workspace_id for r in rules if r.paused}
        for line in lines:
            line.paused = line.paused or line.workspace_id in paused
    aside = [x.tenant_id for x in lines if x.paused]
    if aside:
        admission.park(pair, aside, "paused")
        picked.again = True
        lines = [x for x in lines if not x.paused]
    capped = [r for r in rules if r.most is not None]
    return _with_caps(pair, lines, capped, picked) if capped and lines else lines


def shut(pair: Pair, picked: Picked) -> bool:
    """Whether the whole site's throttles let nothing more of this pair begin in this claim."""
    if not picked.rules.places or pair[0] == SYSTEM:
        return False
    return any(r.workspace_id is None and (r.paused or (r.most is not None and not _has_room(r, picked)))
               for r in picked.rules.of_pair(pair))


def _has_room(rule: Rule, picked: Picked) -> bool:
    assert rule.most is not None
    if rule.cap in picked.busy:
        return False
    return (picked.rooms[rule.cap][1] if rule.cap in picked.rooms else rule.hint) < rule.most


def _with_caps(pair: Pair, lines: list[Line], capped: Sequence[Rule], picked: Picked) -> list[Line]:
    here = {x.workspace_id for x in lines}
    met = [r for r in capped if r.workspace_id is None or r.workspace_id in here]
    _ask({r.cap for r in met if _has_room(r, picked)}, picked)
    full = {r.workspace_id for r in met if not _has_room(r, picked)}
    if None in full:
        return []
    picked.shut.setdefault(pair, set()).update(w for w in full if w is not None)
    left = [x for x in lines if x.workspace_id not in full]
    for line in left:
        line.caps = [(r.cap, r.most) for r in met  # type: ignore[misc]
                     if r.workspace_id in (None, line.workspace_id)]
    return left


def places_left(lines: Sequence[Line], picked: Picked) -> int:
    """How many more of these lines' jobs may begin at most, by what is left to take and by caps of their places."""
    if not lines or not lines[0].caps:
        return picked.left
    return min(picked.left, max(min((most - picked.rooms[name][1] for name, most in x.caps), default=NEVER)
                                for x in lines))


def judge(pair: Pair, found: Sequence[Candidate], lines: dict[int, Line], by: str, picked: Picked) -> dict[int, int]:
    """Take what may be taken of these candidates, locked by us; how many each tenant had, whether taken or not."""
    had = dict.fromkeys(lines, 0)
    grouped = [(group, lines[t]) for _, t, group, _, _ in found if group and lines[t].group_max is not None]
    if grouped:
        _ask_groups(grouped, picked)
    owned = {t for _, t, _, credential, _ in found if credential == OWNER} - picked.asked
    if owned:
        _ask_owners(owned, picked)
    typed = bool(picked.rules.types) and pair[0] != SYSTEM
    if typed:
        _ask_types(found, lines, picked)
    aside = _Aside()
    for id_, tenant, group, credential, type_ in found:
        had[tenant] += 1
        _consider(id_, lines[tenant], group, credential, type_ if typed else None, picked, aside)
    if aside.held:
        admission.hold(aside.held)
        picked.again = True
    for tenant in sorted(aside.full | aside.lost):
        _put_aside(pair, lines[tenant], aside, by, picked)
    for tenant, ids in sorted(aside.typed.items()):
        _put_types_aside(pair, lines[tenant], ids, picked)
    return had


def _ask_groups(grouped: Iterable[tuple[str, Line]], picked: Picked) -> None:
    _ask({admission.group_key(x.group_scope, x.workspace_id, x.tenant_id, g) for g, x in grouped}, picked)


def _ask_types(found: Sequence[Candidate], lines: dict[int, Line], picked: Picked) -> None:
    met = {(type_, lines[t].workspace_id) for _, t, _, _, type_ in found if type_ in picked.rules.types}
    _ask({r.cap for type_, workspace in met for r in picked.rules.of_type(str(type_), workspace)
          if r.most is not None and not r.paused}, picked)


def _ask(names: set[str], picked: Picked) -> None:
    """How many run under these caps, once a claim: the key first, then the count."""
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


def _put_types_aside(pair: Pair, line: Line, met: list[str], picked: Picked) -> None:
    """The jobs of full and paused types at the head of this line, some at a time: behind their gate."""
    types = [name for name in picked.rules.types
             if any(r.paused or (r.most is not None and r.cap in picked.rooms and not _has_room(r, picked))
                    for r in picked.rules.of_type(name, line.workspace_id))]
    ids = met + throttling.heads(pair, line.tenant_id, types, picked.met)
    admission.hold(ids, Gate.TYPE)
    picked.again = True
    if len(ids) >= throttling.ASIDE // 2:
        # There is more of them than one claim should move; the tenant's other jobs have the next one.
        line.room = 0


def _consider(id_: str, line: Line, group: str | None, credential: str, type_: str | None, picked: Picked,
              aside: _Aside) -> None:
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
        if picked.rooms[name][1] >= line.group_max:
            aside.held.append(id_)
            return
    else:
        name = None
    if (type_ is not None or line.caps) and not _within(id_, line, type_, picked, aside):
        return
    if name is not None:
        _count(id_, name, picked)
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


def _count(id_: str, name: str, picked: Picked) -> None:
    key, used = picked.rooms[name]
    picked.rooms[name] = (key, used + 1)
    picked.caps.append((id_, key))


def _within(id_: str, line: Line, type_: str | None, picked: Picked, aside: _Aside) -> bool:
    """Whether the caps and pauses of its type, its queue and its worker group let this job begin; counted, if so."""
    names = [name for name, _ in line.caps]
    if any(picked.rooms[name][1] >= most for name, most in line.caps):
        line.room = 0
        return False
    for rule in picked.rules.of_type(type_, line.workspace_id) if type_ in picked.rules.types else ():
        if not rule.paused and rule.most is None:
            continue
        if not rule.paused and rule.cap in picked.busy:
            # Whoever holds the key is about to commit; the backlog of this type is not for us to walk through.
            line.room = 0
            return False
        if rule.paused or not _has_room(rule, picked):
            aside.typed.setdefault(line.tenant_id, []).append(id_)
            return False
        names.append(rule.cap)
    for name in names:
        _count(id_, name, picked)
    return True


def _owner(id_: str, line: Line, picked: Picked, aside: _Aside) -> Standing | None:
    """Under whom this tenant's job may run now; else it is put aside, if nobody else is at its owner."""
    if line.tenant_id not in picked.owners:
        return None
    owner = picked.owners[line.tenant_id]
    if owner is not None and owner.room > 0:
        return owner
    (aside.lost if owner is None else aside.full).setdefault(line.tenant_id, []).append(id_)
    return None
