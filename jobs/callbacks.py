"""Where callbacks may go and what they tell: events, addresses, and which of them are refused (A37, E11, case-I04).

Plain values in and out: nothing here looks a name up. `Policy.permits` judges what a look-up has found, each time.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from jobs.errors import Invalid
from jobs.states import State

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# The job that sends one callback.
DELIVERY_TYPE: Final = "callback-delivery"
EVENTS: Final = {"dispatched": 1, "completed": 2, "failed": 4, "cancelled": 8}
TERMINAL_EVENTS: Final = ("completed", "failed", "cancelled")
# On the jobs that deliver: the house keeps the log of them itself.
HOUSE: Final = 16
EVENT_OF: Final = {State.COMPLETED: "completed", State.FAILED: "failed", State.CANCELLED: "cancelled",
                   State.SUPERSEDED: "cancelled"}
# Deliveries to one host that are under way at once, over all processes.
PER_HOST: Final = 2
# Marks exclusive groups of the house's: no caller can spell it, since theirs are printable ASCII.
MARK: Final = "\u00a7"
URL_LIMIT: Final = 2_000
PORTS: Final = {"https": (443, 8443), "http": (80, 8080)}
_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_LITERAL: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_LOCAL: Final = (".localhost", ".local", ".internal", ".intranet", ".lan", ".home", ".corp", ".home.arpa",
                 ".localdomain")
# What Python calls global, and what leads to an address inside another one.
_TUNNELS: Final = tuple(map(ipaddress.ip_network, (
    "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "fec0::/10", "::/96", "192.88.99.0/24")))


def bits(events: Iterable[str]) -> int:
    """A set of events as the job's row keeps it."""
    return sum(EVENTS[event] for event in set(events))


def names(mask: int | None) -> list[str]:
    """The events of such a number, in the order in which they happen."""
    return [event for event, bit in EVENTS.items() if mask is not None and mask & bit]


def events_of(said: Any, field: str = "callback_events") -> frozenset[str]:
    """The events that a request asks for; `canceled` is understood. Raises Invalid invalid_callback_events."""
    if isinstance(said, (list, tuple, set, frozenset)) and all(isinstance(one, str) for one in said):
        asked = frozenset("cancelled" if one == "canceled" else one for one in said)
        if asked and asked <= EVENTS.keys():
            return asked
    raise Invalid(f"must be a list of one or more of {', '.join(EVENTS)}", field=field, code="invalid_callback_events")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address that may be called, taken apart; `host` is a name in small letters or an address."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """As the Host header says it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme][0] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port: whom a bearer token is for."""
        return f"{self.scheme}://{self.authority}"


def group(host: str) -> str:
    """The exclusive group of the deliveries to a host; of its name only a digest, which says nothing of a caller."""
    return f"{MARK}callback:{hashlib.sha256(host.encode()).hexdigest()[:32]}"


@dataclass(frozen=True)
class Policy:
    """What a site lets callbacks reach beside public addresses: hosts, `host:port` and networks; http where it says so.

    Raises Invalid where an entry of `allow` is none of these.
    """

    allow: tuple[str, ...] = ()
    http: bool = False

    @cached_property
    def _entries(self) -> tuple[frozenset[str], frozenset[tuple[str, int]], tuple[Network, ...]]:
        hosts, ports, networks = set(), set(), []
        for entry in self.allow:
            if (network := _network(entry)) is not None:
                networks.append(network)
                continue
            found = re.fullmatch(r"(\[[0-9a-f:]+\]|[^:]+)(?::([0-9]{1,5}))?", entry.lower())
            host, port = (found[1].strip("[]"), found[2]) if found else (entry.lower(), None)
            if not host or not (_is_name(host) or _address(host) is not None):
                raise Invalid(f"{entry!r} is no host, host:port or network.", field="CALLBACK_ALLOW",
                              code="invalid_callback_url")
            hosts.add(host)
            if port:
                ports.add((host, int(port)))
        return frozenset(hosts), frozenset(ports), tuple(networks)

    def check(self) -> None:
        """Raises Invalid for an entry that means nothing."""
        _ = self._entries

    def allows(self, host: str) -> bool:
        """Whether this very host is allowed, whatever its address."""
        return host in self._entries[0]

    def permits(self, host: str, address: str) -> bool:
        """Whether the address that a host's name was found to have may be connected to."""
        found = _address(address)
        if found is None:
            return False
        inside = any(found in network for network in self._entries[2] if network.version == found.version)
        return inside or self.allows(host) or is_public(found)

    def target(self, url: Any, field: str = "callback_url") -> Endpoint:
        """The address, taken apart; looks nothing up. Raises Invalid invalid_callback_url."""
        split, port = _split(url, field)
        host = (split.hostname or "").lower()
        schemes = ("https", "http") if self.http else ("https",)
        if split.scheme.lower() not in schemes:
            raise _invalid(f"must begin with {' or '.join(f'{s}://' for s in schemes)}", field)
        if "@" in split.netloc:
            raise _invalid("must name no user and no password", field)
        target = Endpoint(split.scheme.lower(), host, port or PORTS[split.scheme.lower()][0],
                        (split.path or "/") + (f"?{split.query}" if split.query else ""))
        self._check_host(target, field)
        if target.port not in PORTS[target.scheme] and (host, target.port) not in self._entries[1]:
            raise _invalid(f"must use port {' or '.join(map(str, PORTS[target.scheme]))}", field)
        return target

    def _check_host(self, target: Endpoint, field: str) -> None:
        host, literal = target.host, _address(target.host)
        if literal is not None:
            if not self.permits(host, host):
                raise _invalid("must not name an address inside a private or reserved network", field)
        elif not _is_name(host):
            raise _invalid("must name a host by its name in ASCII, or by an address written in full", field)
        elif not self.allows(host) and ("." not in host or host.endswith(_LOCAL)):
            raise _invalid("must name a public host", field)


def _split(url: Any, field: str) -> tuple[SplitResult, int | None]:
    if not isinstance(url, str) or not 0 < len(url) <= URL_LIMIT:
        raise _invalid(f"must be a URL of at most {URL_LIMIT} characters", field)
    # Parsers disagree about these: what we check must be what is called.
    if not url.isascii() or not url.isprintable() or any(sign in url for sign in " \\#<>\"'`{}|^"):
        raise _invalid("must be a URL in plain ASCII, without spaces, quotes, backslashes or a fragment", field)
    try:
        split = urlsplit(url)
        return split, split.port
    except ValueError:
        raise _invalid("must be a URL with a host and at most a port", field) from None


def _is_name(host: str) -> bool:
    labels = host.split(".")
    # Names whose last part is a number are addresses to some resolvers, in whatever form (127.1, 0x7f000001).
    return len(host) <= 253 and all(map(_LABEL.fullmatch, labels)) and not _LITERAL.fullmatch(labels[-1])


def _address(text: str) -> Address | None:
    try:
        return None if "%" in text else ipaddress.ip_address(text)
    except ValueError:
        return None


def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text, strict=False) if "/" in text else None
    except ValueError:
        return None


def is_public(address: Address) -> bool:
    """Whether an address is one of the public internet: no private, local, shared, reserved, multicast, tunnelled."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return False
    if any(address in network for network in _TUNNELS if network.version == address.version):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def _invalid(message: str, field: str) -> Invalid:
    return Invalid(message, field=field, code="invalid_callback_url")
