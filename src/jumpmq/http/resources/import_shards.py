"""Conversion of shards in a foreign broker's definitions file to shards of this broker.

A shard's name contains its node: ``sharding: EXCHANGE - NODE - I``. Shards of unknown nodes would stay bound next to
new shards, and the pseudo-queue would not reach them. Such shards are therefore imported under new names, with nodes of
this broker:

- Both the shards of an exchange and the new names are sorted, and assigned in this order. ``x-modulus-hash`` counts
  queues by name; a ring counts queues in the order of bindings, which does not change. Therefore no key moves.
- The new names are spread evenly over this broker's nodes, in the order of joining. The policy's ``shards-per-node``
  becomes the number of shards per node, rounded up: if the shards cannot be spread evenly, shards are added.
- An existing exchange with the same number of shards keeps its shards and its policy: a repeated import gives the same
  names, also after nodes have joined.

A file of JumpMQ is imported unchanged, because the file's nodes may join later. The exception: if the file and this
broker have one node each, shards are renamed, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from jumpmq.topology import Topology
from jumpmq.topology.policies import InvalidPolicy, Policies, Policy
from jumpmq.topology.shards import MAX_SHARDS, ShardSettings, shard_name, split_shard_name

Entry = dict[str, Any]


@dataclass
class Renaming:
    """Changes to a definitions file before the import.

    Attributes:
        queues: new name of each renamed shard, by virtual host and old name.
        policies: new ``shards-per-node``, by virtual host and name of the policy.
        notes: other changes, a line each.
    """

    queues: dict[tuple[str, str], str] = field(default_factory=dict)
    policies: dict[tuple[str, str], int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def entry(self, section: str, entry: Any) -> Any:
        """Return an entry of a section, with new names and numbers of shards."""
        if not isinstance(entry, dict):
            return entry
        if section == "queues" and (name := self._queue(entry, "name")) is not None:
            return {**entry, "name": name}
        is_to_queue = section == "bindings" and entry.get("destination_type", "queue") == "queue"
        if is_to_queue and (name := self._queue(entry, "destination")) is not None:
            return {**entry, "destination": name}
        if section == "policies" and (count := self.policies.get(_key(entry, "name"))) is not None:
            definition = entry.get("definition")
            if isinstance(definition, dict) and _is_count(definition.get("shards-per-node")):
                return {**entry, "definition": {**definition, "shards-per-node": count}}
        return entry

    def _queue(self, entry: Entry, key: str) -> str | None:
        return self.queues.get(_key(entry, key))

    def shown(self) -> list[Entry]:
        """Return the renamed queues, for the answer."""
        return [{"vhost": vhost, "from": old, "to": new} for (vhost, old), new in self.queues.items()]


def _key(entry: Entry, key: str) -> tuple[str, str]:
    vhost, name = entry.get("vhost"), entry.get(key)
    return (vhost, name) if isinstance(vhost, str) and isinstance(name, str) else ("", "")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


@dataclass
class _Sharded:
    """A sharded exchange in the file.

    Attributes:
        shards: node and number of each shard, by name.
    """

    policy: Policy
    settings: ShardSettings
    shards: dict[str, tuple[str, int]] = field(default_factory=dict)


def shards_renamed(topology: Topology, found: Entry, vhost: str | None, renaming: Renaming) -> Iterator[None]:
    """Collect new names for the shards of foreign nodes in a definitions file into ``renaming``, with a pause after
    every entry.

    Args:
        found: the file's JSON, possibly malformed: the import refuses malformed entries later.
        vhost: the virtual host for all entries; None for the virtual hosts named by the entries.
    """
    sharding = False
    for entry in _entries(found, "policies", vhost):
        definition = entry.get("definition")
        sharding |= isinstance(definition, dict) and "shards-per-node" in definition
        yield
    if not sharding:
        return
    policies: dict[str, Policies] = {}
    for entry in _entries(found, "policies", vhost):
        _put(topology, policies, entry)
        yield
    exchanges: dict[tuple[str, str], _Sharded] = {}
    for entry in _entries(found, "exchanges", vhost):
        host, name = _key(entry, "name")
        if name and host in policies:
            policy = policies[host].in_force("exchange", name).policy
            settings = None if policy is None else ShardSettings.of(policy.definition)
            if policy is not None and settings is not None and settings.count:
                exchanges[host, name] = _Sharded(policy, settings)
        yield
    for entry in _entries(found, "queues", vhost) if exchanges else ():
        host, name = _key(entry, "name")
        if (parsed := split_shard_name(name)) is not None and (host, parsed[0]) in exchanges:
            exchanges[host, parsed[0]].shards[name] = parsed[1:]
        yield
    is_own = found.get("product_name") == "JumpMQ"
    for (host, name), one in exchanges.items():
        _rename(topology, host, name, one, is_own, renaming)
        yield
    for (host, name), one in exchanges.items():
        if (count := renaming.policies.get((host, one.policy.name))) is not None:
            _note(topology, host, name, one, count, renaming)
            yield


def _entries(found: Entry, section: str, vhost: str | None) -> Iterator[Entry]:
    listed = found.get(section)
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict):
            yield entry if vhost is None else {**entry, "vhost": vhost}


def _put(topology: Topology, policies: dict[str, Policies], entry: Entry) -> None:
    """Add a policy of the file to the existing ones, if well-formed."""
    host, name = _key(entry, "name")
    pattern, definition = entry.get("pattern"), entry.get("definition")
    if not (isinstance(pattern, str) and isinstance(definition, dict)):
        return
    policy = Policy(host, name, pattern, definition, entry.get("priority", 0), entry.get("apply-to", "all"))
    try:
        policy.check(operator=False)
    except (InvalidPolicy, TypeError):
        return
    if host not in policies:
        policies[host] = Policies()
        here = topology.vhosts.get(host)
        for one in here.policies.all(operator=False) if here is not None else ():
            policies[host].put(one, operator=False)
    policies[host].put(policy, operator=False)


def _octets(name: str) -> bytes:
    """Return the sort key of a name; invalid Unicode is refused later."""
    return name.encode("utf-8", "surrogatepass")


def _rename(topology: Topology, host: str, name: str, one: _Sharded, is_own: bool, renaming: Renaming) -> None:
    """Choose names for the shards of foreign nodes."""
    nodes = list(topology.nodes)
    others = {node for node, _ in one.shards.values()} - set(nodes)
    if not others or (is_own and (len(others) > 1 or len(nodes) > 1 or len(others) < len(_nodes(one)))):
        return
    foreign = sorted((shard for shard, (node, _) in one.shards.items() if node in others), key=_octets)
    here = _names_here(topology, host, name, nodes)
    is_here = len(here) >= len(foreign)
    names = here if is_here else _new_names(name, nodes, one, len(foreign))
    for old, new in zip(foreign, sorted(names[: len(foreign)], key=_octets), strict=True):
        renaming.queues[host, old] = new
    policy = host, one.policy.name
    counted = sum(number < one.settings.count for _, number in one.shards.values())
    wanted = min(ceil(counted / len(nodes)), MAX_SHARDS)
    if is_here:
        known = topology.vhosts[host].policies.policies.get(one.policy.name)
        wanted = one.settings.count if known is None else known.definition.get("shards-per-node", wanted)
    renaming.policies[policy] = max(wanted, renaming.policies.get(policy, 0))


def _nodes(one: _Sharded) -> set[str]:
    return {node for node, _ in one.shards.values()}


def _names_here(topology: Topology, host: str, name: str, nodes: list[str]) -> list[str]:
    """Return the shards of an existing exchange, in the order of nodes and numbers."""
    vhost = topology.vhosts.get(host)
    if vhost is None or name not in vhost.exchanges:
        return []
    return [shard.name for node in nodes for _, shard in vhost.shards.of_node(name, node)]


def _new_names(name: str, nodes: list[str], one: _Sharded, count: int) -> list[str]:
    """Return ``count`` new shard names, spread evenly over the nodes, without names used in the file."""
    found: list[str] = []
    number = 0
    while len(found) < count:
        found += [new for node in nodes if (new := shard_name(name, node, number)) not in one.shards]
        number += 1
    return found[:count]


def _note(topology: Topology, host: str, name: str, one: _Sharded, count: int, renaming: Renaming) -> None:
    """Note the change of the policy, and the added shards."""
    where = f"in vhost '{host}'"
    if count != one.settings.count:
        line = f"policy '{one.policy.name}' {where}: shards-per-node is {count}, not {one.settings.count}"
        if line not in renaming.notes:
            renaming.notes.append(line)
    there = {renaming.queues.get((host, shard), shard) for shard in one.shards}
    wanted = (shard_name(name, node, number) for node in topology.nodes for number in range(count))
    here = topology.vhosts[host].declared if host in topology.vhosts else {}
    added = sum(shard not in there and shard not in here for shard in wanted)
    if added:
        total = len(there) + added
        renaming.notes.append(
            f"exchange '{name}' {where}: {added} of {total} shards are new, since {len(there)} cannot be spread evenly "
            f"over {len(topology.nodes)} nodes; "
            f"keys move to the new shards"
        )
