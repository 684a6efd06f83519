"""Identical copies of the rings of RabbitMQ's consistent hash exchanges.

On a ring of RabbitMQ, the buckets of a destination are adjacent, and their number is the destination's weight. A
removal shifts the buckets of later destinations down. The order and the weights of the destinations thus define the
ring: adding the same destinations in the same order gives an identical ring. Neither RabbitMQ's definitions nor its
management API have the order. :data:`EXPRESSION` prints the order with `rabbitmqctl eval`.
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
"""Erlang expression that prints the rings of all virtual hosts: ``|VHOST EXCHANGE KIND:NAME:FIRST:LAST:COUNT ...``,
with names in hexadecimal. For RabbitMQ 3.10 and later."""

PATIENCE = 600.0
"""Time limit of rabbitmqctl, in seconds; a million buckets take a minute."""

SAMPLE = 20_000
"""Number of keys in the comparison of two different rings."""

Name = tuple[str, str]
"""Virtual host and exchange."""


class RingsUnknown(Exception):
    """The rings of a RabbitMQ are not available; the text gives the reason."""


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
"""Destinations in the order of their buckets, by exchange."""


def rings_of(command: str) -> Rings:
    """Ask a RabbitMQ for its rings.

    Args:
        command: command line of rabbitmqctl, such as ``sudo rabbitmqctl`` or ``docker exec rabbit rabbitmqctl``.

    Raises:
        RingsUnknown: the command fails, or its output is not a list of rings.
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
    """Parse the output of `rabbitmqctl eval` for :data:`EXPRESSION`.

    Raises:
        RingsUnknown: the text is not such an output.
    """
    octets = "".join(re.findall(r'"([^"]*)"', text))  # a long binary is printed in pieces
    if not re.fullmatch(r"[0-9A-Fa-z:| ]*", octets) or "<<" not in text:
        raise RingsUnknown("this is not the output of `rabbitmqctl eval` for rings")
    try:
        return dict(_ring(one) for one in octets.split("|")[1:])
    except (ValueError, IndexError):
        raise RingsUnknown("the output of `rabbitmqctl eval` for rings is damaged") from None


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
    """A consistent hash exchange of the definitions; ``places`` has the list indexes of its bindings."""

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
        definitions: definitions of a RabbitMQ; the list of bindings is changed.
        vhost: virtual host of the definitions; None if each entry names a virtual host.
        rings: the known rings.

    Returns:
        the destinations of each exchange with two or more, in the order of the resulting ring.
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
    """Return a sort key: the position on the ring. Of a destination's bindings, one with the ring's weight is first."""
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
        names: new names of renamed queues, by old name.
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
    """Yield a line per exchange with keys routed, certainly or possibly, to another destination than on RabbitMQ.

    Args:
        new: the JumpMQ, after the import of the definitions.
        wanted: the result of :func:`in_order`.
        rings: the known rings of the RabbitMQ.
        names: new names of renamed queues, by virtual host and old name.
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
                why = _why(ring, found)
                yield f"{subject}: {moved:.1%} of the keys go to another destination than on RabbitMQ: {why}"
        else:
            yield (
                f"{subject}: the order of the {len(found)} destinations on RabbitMQ's ring is unknown, and the order "
                f"of the bindings is used; if the orders differ, about {_at_random(found):.0%} of the keys go to "
                "another destination (--rabbitmqctl or --rings gives the order)"
            )


def _why(ring: list[Bound], found: list[Bound]) -> str:
    on_ring, bound = {one[:2] for one in ring}, {one[:2] for one in found}
    if lacking := on_ring - bound:
        return f"{len(lacking)} of the ring's destinations are not among the definitions (exclusive queues?)"
    if more := bound - on_ring:
        return f"{len(more)} of the bound destinations are not on RabbitMQ's ring"
    return "the exchange existed before the move, with another ring"


def _moved(before: HashRing, after: HashRing) -> float:
    """Return the share of keys routed to another destination, from 0 to 1: measured on a sample, and exactly 0 for
    identical rings.
    """
    if before.runs() == after.runs() and not after.retired and after.function == before.function:
        return 0.0
    keys = [b"key-%d" % number for number in range(SAMPLE)]
    return sum(before.route(key) != after.route(key) for key in keys) / SAMPLE


def _at_random(found: list[Bound]) -> float:
    """Return the share of keys moved by a changed order, on average over all orders: 0 to 1."""
    total = sum(bound.weight for bound in found) or 1
    return 1 - sum((bound.weight / total) ** 2 for bound in found)
