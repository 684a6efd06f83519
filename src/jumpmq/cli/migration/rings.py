"""Rings of RabbitMQ's consistent hash exchanges, taken over bit for bit.

A ring of RabbitMQ has its destinations one behind the other, each with as many buckets as its weight: removals shift
the others down. So it is known by the order of its destinations, and a ring to which they are added in that order is
the same. Definitions do not have the order, and RabbitMQ's management API does not show it. :data:`EXPRESSION` does,
for `rabbitmqctl eval`.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from jumpmq.hashing import HashRing
from jumpmq.hashing.ring import MAX_WEIGHT
from jumpmq.management import ManagementClient

EXPRESSION = """\
R = fun(N) -> try rabbit_db_ch_exchange:get(N) catch error:undef -> \
case ets:lookup(rabbit_exchange_type_consistent_hash_ring_state, N) of [X] -> X; _ -> undefined end end end, \
F = fun(B, D, A) -> {L, H, C} = maps:get(D, A, {B, B, 0}), A#{D => {min(L, B), max(H, B), C + 1}} end, \
iolist_to_binary([[<<"|">>, binary:encode_hex(V), <<" ">>, binary:encode_hex(element(4, element(2, E))), \
[[<<" ">>, atom_to_binary(element(3, D)), <<":">>, binary:encode_hex(element(4, D)), \
[[<<":">>, integer_to_binary(I)] || I <- [L, H, C]]] \
|| {D, {L, H, C}} <- maps:to_list(maps:fold(F, #{}, element(3, R(element(2, E)))))]] \
|| V <- rabbit_vhost:list_names(), E <- rabbit_exchange:list(V), element(3, E) =:= 'x-consistent-hash', \
is_tuple(R(element(2, E)))])."""
"""Prints the rings of all virtual hosts: ``|VHOST EXCHANGE KIND:NAME:FIRST:LAST:COUNT ...``, names in hexadecimal; of
RabbitMQ 3.10 and later."""

PATIENCE = 600.0
"""Seconds that rabbitmqctl may take: a minute for a million buckets."""

SAMPLE = 20_000
"""Number of keys sampled where rings differ."""

Name = tuple[str, str]
"""Virtual host and exchange."""


class RingsUnknown(Exception):
    """The rings of a RabbitMQ cannot be had; the text says why."""


class Bound(NamedTuple):
    """A destination on a ring."""

    kind: str
    name: str
    weight: int

    @property
    def label(self) -> str:
        """Label of the destination in JumpMQ's API."""
        if self.kind == "exchange":
            return f"exchange:{self.name}"
        return f"queue:{self.name}" if self.name.startswith(("exchange:", "queue:")) else self.name


Rings = Mapping[Name, list[Bound]]
"""Destinations in the order of their buckets."""


def rings_of(command: str) -> Rings:
    """Ask a RabbitMQ for its rings.

    Args:
        command: that is rabbitmqctl, such as ``sudo rabbitmqctl`` or ``docker exec rabbit rabbitmqctl``.

    Raises:
        RingsUnknown: it fails, or answers something else.
    """
    try:
        line = [*shlex.split(command), "--quiet", "eval", EXPRESSION]
        done = subprocess.run(line, capture_output=True, text=True, errors="replace", timeout=PATIENCE, check=False)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise RingsUnknown(f"cannot run '{command}': {getattr(error, 'strerror', None) or error}") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()
        raise RingsUnknown(f"'{command} eval' ended with status {done.returncode}: {said[0][:200]}")
    return read_rings(done.stdout)


def read_rings(text: str) -> Rings:
    """The rings in what `rabbitmqctl eval` printed for :data:`EXPRESSION`.

    Raises:
        RingsUnknown: it is something else.
    """
    octets = "".join(re.findall(r'"([^"]*)"', text))  # a long binary is printed in pieces
    if not re.fullmatch(r"[0-9A-Fa-z:| ]*", octets) or "<<" not in text:
        raise RingsUnknown("this is not what `rabbitmqctl eval` prints of rings")
    try:
        return dict(_ring(one) for one in octets.split("|")[1:])
    except (ValueError, IndexError):
        raise RingsUnknown("what `rabbitmqctl eval` has printed of rings is damaged") from None


def _ring(text: str) -> tuple[Name, list[Bound]]:
    vhost, exchange, *found = text.split(" ")
    places = []
    for one in found:
        kind, name, *numbers = one.split(":")
        first, last, count = map(int, numbers)
        if last - first + 1 != count or kind not in ("queue", "exchange"):
            raise ValueError(one)
        places.append((first, Bound(kind, _text(name), count)))
    places.sort()
    ends = [0, *(first + bound.weight for first, bound in places)]
    if [first for first, _ in places] != ends[:-1]:
        raise ValueError(text)
    return (_text(vhost), _text(exchange)), [bound for _, bound in places]


def _text(octets: str) -> str:
    return bytes.fromhex(octets).decode("utf-8", "surrogateescape")


@dataclass
class _Hash:
    """A consistent hash exchange of the definitions, with the list positions of its bindings."""

    places: list[int]

    def bound(self, bindings: list[Any]) -> list[Bound]:
        """Return the destinations in the ring's order; of several bindings of a destination, the first counts."""
        found: dict[tuple[str, str], Bound] = {}
        for place in self.places:
            one = bindings[place]
            weight = one.get("routing_key", "")
            if isinstance(weight, str) and weight.isascii() and weight.isdigit() and len(weight) < 10:
                kind, name = one.get("destination_type", "queue"), one["destination"]
                found.setdefault((kind, name), Bound(kind, name, int(weight)))
        return list(found.values())


def in_order(definitions: dict[str, Any], vhost: str | None, rings: Rings) -> dict[Name, list[Bound]]:
    """Put the bindings of consistent hash exchanges into the order of their rings.

    Args:
        definitions: of a RabbitMQ; its list of bindings is changed.
        vhost: the virtual host that they are of; None where entries say.
        rings: the known rings.

    Returns:
        what the ring of each exchange becomes that has two destinations or more.
    """
    bindings = definitions.get("bindings", [])
    found = {}
    for name, one in _hash_exchanges(definitions, vhost).items():
        if (ring := rings.get(name)) is not None:
            order = {(bound.kind, bound.name): place for place, bound in enumerate(ring)}
            entries = sorted((bindings[place] for place in one.places), key=lambda entry: _rank(entry, order, ring))
            for place, entry in zip(one.places, entries, strict=True):
                bindings[place] = entry
        if len(bound := one.bound(bindings)) > 1:
            found[name] = bound
    return found


def _rank(entry: Any, order: Mapping[tuple[str, str], int], ring: list[Bound]) -> tuple[int, bool]:
    """Sort key by position on the ring; of several bindings of a destination, the binding with the ring's weight comes
    first.
    """
    place = order.get((entry.get("destination_type", "queue"), entry["destination"]), len(ring))
    return place, place < len(ring) and entry.get("routing_key") != str(ring[place].weight)


def _hash_exchanges(definitions: dict[str, Any], vhost: str | None) -> dict[Name, _Hash]:
    found = {
        (one.get("vhost", vhost), one["name"]): _Hash([])
        for one in definitions.get("exchanges", [])
        if one.get("type") == "x-consistent-hash"
    }
    for place, one in enumerate(definitions.get("bindings", [])):
        if (source := found.get((one.get("vhost", vhost), one["source"]))) is not None:
            source.places.append(place)
    return found


def ring_of(found: list[Bound], names: Mapping[str, str] | None = None) -> HashRing:
    """Build the ring of destinations, added in the given order.

    Args:
        names: other names of queues, if they have any.
    """
    ring = HashRing()
    for bound in found:
        name = bound.name if bound.kind != "queue" or names is None else names.get(bound.name, bound.name)
        ring.add(Bound(bound.kind, name, bound.weight).label, min(bound.weight, MAX_WEIGHT))
    return ring


def differences(
    new: ManagementClient,
    wanted: Mapping[Name, list[Bound]],
    rings: Rings,
    names: Mapping[tuple[str, str], str],
) -> Iterator[str]:
    """Yield a line per exchange on keys routed, certainly or possibly, to a different queue than on RabbitMQ.

    Args:
        new: the JumpMQ, which has the definitions.
        wanted: what :func:`in_order` has found.
        names: queues that have another name there, by virtual host and name.
    """
    for name, found in wanted.items():
        vhost, exchange = name
        renamed = {old: new_name for (host, old), new_name in names.items() if host == vhost}
        state = new.find("exchanges", vhost, exchange, "ring")
        if state is None:
            continue
        runs = [[one["destination"], one["runs"]] for one in state["destinations"]]
        here = HashRing.restore(
            {"removal": state["removal"], "function": state["function"], "destinations": runs}
            | {"retired": state["retired"]}
        )
        subject = f"exchange '{exchange}' in vhost '{vhost}'"
        if (ring := rings.get(name)) is not None:
            if moved := _moved(ring_of(ring, renamed), here):
                yield f"{subject}: {moved:.1%} of the keys go elsewhere than by RabbitMQ's ring: {_why(ring, found)}"
        else:
            yield (
                f"{subject}: the order of its {len(found)} destinations on RabbitMQ's ring is not known, and that of "
                f"the bindings is taken; where it is another, about {_at_random(found):.0%} of the keys go to another "
                "queue (--rabbitmqctl or --rings tells it)"
            )


def _why(ring: list[Bound], found: list[Bound]) -> str:
    on_ring, bound = {one[:2] for one in ring}, {one[:2] for one in found}
    if lacking := on_ring - bound:
        return f"{len(lacking)} of its destinations are not among the definitions (exclusive queues?)"
    if more := bound - on_ring:
        return f"{len(more)} of the bindings are not on it"
    return "the exchange was here before, with another ring"


def _moved(before: HashRing, after: HashRing) -> float:
    """The part of the keys that go elsewhere: 0 to 1, by a sample; none where the rings are the same."""
    if before.runs() == after.runs() and not after.retired and after.function == before.function:
        return 0.0
    keys = [b"key-%d" % number for number in range(SAMPLE)]
    return sum(before.route(key) != after.route(key) for key in keys) / SAMPLE


def _at_random(found: list[Bound]) -> float:
    """Return the part of the keys moved by a changed order, on average over all orders: 0 to 1."""
    total = sum(bound.weight for bound in found) or 1
    return 1 - sum((bound.weight / total) ** 2 for bound in found)
