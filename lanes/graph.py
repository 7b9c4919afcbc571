"""Which lanes wait for which, as a plain graph: whether new edges would close a circle, and which one."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def circle(node: Node, on: Collection[Node], edges: Mapping[Node, Collection[Node]]) -> list[Node] | None:
    """The way from `node` over one of `on` back to itself, if it depended on these; None where there is none.

    `edges` says what each other node depends on. Every node is looked at once, without recursion.
    """
    came: dict[Node, Node] = {}
    waiting = list(on)
    for first in waiting:
        came.setdefault(first, node)
    while waiting:
        here = waiting.pop()
        if here == node:
            return _way(node, came)
        for following in edges.get(here, ()):
            if following not in came:
                came[following] = here
                waiting.append(following)
    return None


def _way(node: Node, came: Mapping[Node, Node]) -> list[Node]:
    way, here = [node], came[node]
    while here != node:
        way.append(here)
        here = came[here]
    return [node, *reversed(way[1:]), node]
