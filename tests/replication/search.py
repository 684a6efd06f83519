"""Exhaustive search over the real classes: all histories of two or three replicas with few commits and failures.

    python -m tests.replication.search --nodes 3 --commits 3 --failures 2

Time is left out: a claim, a removal, a join, the landing of a swap may come at any moment. The search covers all
timings, but not leases: walks and stories test leases. Frames, requests and answers arrive before the next choice,
unless a failure holds them up, possibly for long. The search is breadth first: a wrong history is among the shortest.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

from tests.replication.world import REAL, Node, Parts, World, Wrong

from jumpmq.replication.candidate import GATHERING

Step = tuple[Any, ...]


class Limits(NamedTuple):
    """Bounds of a history.

    Attributes:
        commits: number of commits written.
        failures: number of failed machines, processes, connections, and lost answers of etcd.
        epochs: highest epoch.
        changes: swaps of leaders: highest version of etcd's value.
    """

    commits: int = 3
    failures: int = 2
    epochs: int = 3
    changes: int = 4


FAILURES = {"land_unheard", "lose_power", "restart", "cut", "hold", "blind"}
"""Names of choices counted as failures."""


def choices(world: World, limits: Limits, failures: int) -> Iterator[Step]:
    """Return the possible next steps, after delivery of everything that is not held up."""
    fails = failures < limits.failures
    for index, asked in enumerate(world.requests):
        yield ("land", index)
        if fails and asked.node not in world.shut:
            yield ("land_unheard", index)
    for name, node in world.nodes.items():
        if node.replica is None:
            yield ("start", name)
        else:
            yield from _choices_of(world, node, limits, fails)
    yield from _choices_between(world, fails)


def _choices_of(world: World, node: Node, limits: Limits, fails: bool) -> Iterator[Step]:
    """Return the possible steps and failures of a process."""
    name, replica = node.name, node.replica
    assert replica is not None and replica.known is not None
    leader, candidate, known = replica.leader, replica.candidate, replica.known
    if fails:
        yield ("lose_power", name)
        if node.writing:
            yield ("restart", name)
        if name not in world.shut:
            yield ("blind", name)
    if name in world.shut:
        yield ("see", name)
    if node.ops:
        yield ("complete", name)
    waits = any(one.node == name and one.life == node.life for one in world.requests)
    if candidate is not None and candidate.phase == GATHERING:
        yield ("gathered", name)
    elif leader is not None:
        if node.writing and world.commits < limits.commits:
            yield ("write", name)
        if known.v < limits.changes and not leader.open:
            yield from (("remove", name, one) for one in known.set if one != replica.copy.me)
            yield from (("join", name, one) for one in sorted(leader.following - leader.waits()))
        if leader.open and not waits and name not in world.shut:
            yield ("retry", name)
    elif candidate is None and replica.electable and known.epoch < limits.epochs and not waits | (name in world.shut):
        yield ("take_over", name)


def _choices_between(world: World, fails: bool) -> Iterator[Step]:
    """Return the possible steps and failures of connections."""
    for one, other in combinations(world.nodes, 2):
        held = {(one, other), (other, one)} & world.blocked
        if (one, other) in world.links and fails:
            yield ("cut", one, other)
            if not held:
                yield from (("hold", one, other), ("hold", other, one))
        alive = all(world.nodes[name].replica is not None for name in (one, other))
        if (one, other) not in world.links and alive and not held:
            yield ("connect", one, other)
        yield from (("release", *pair) for pair in sorted(held))


def apply(world: World, step: Step) -> None:
    """Take a step, deliver everything possible, and check the invariants."""
    name, *of = step
    match name:
        case "land_unheard":
            world.land(of[0], lose_answer=True)
        case "cut":
            world._break(of[0], of[1])
            world.blocked -= {(of[0], of[1]), (of[1], of[0])}
        case "hold":
            world.blocked |= {(of[0], of[1])}
        case "release":
            world.blocked -= {(of[0], of[1])}
        case "blind":
            world.shut |= {of[0]}
        case "see":
            world.shut -= {of[0]}
        case "take_over" | "gathered" | "retry" | "remove" | "join":
            node = world.nodes[of[0]]
            assert node.replica is not None
            arguments = ([of[1]],) if name == "remove" else of[1:]
            world.act(node, getattr(node.replica, name)(*arguments))
        case _:
            getattr(world, name)(*of)
    world.check()
    while _arrives(world):
        world.check()


def _arrives(world: World) -> bool:
    """Deliver the next frame, request or answer that is not held up."""
    for at, answered in enumerate(world.answers):
        if answered.node not in world.shut:
            return world.answer(at)
    for name in world.nodes:
        if name not in world.shut and world.learn(name):
            return True
    return any(world.deliver(pair) for pair, frames in world.links.items() if frames and pair not in world.blocked)


def key(world: World, failures: int) -> Any:
    """Return the part of a world's state that decides the future. Names of lives and salts count only by equality."""
    nodes = []
    for node in world.nodes.values():
        replica, disk = node.replica, node.disk
        state: Any = None
        if replica is not None:
            follower, leader, candidate, mine = replica.follower, replica.leader, replica.candidate, replica.copy
            state = (
                (mine.promised, mine.noted, mine.mark, mine.complete, mine.lineage, mine.stored),
                (follower.leader, follower.lead, follower.matched, follower.cutting, follower.asks, follower.told),
                replica.known,
                replica.peers,
                replica.claim,
                candidate
                and (candidate.epoch, candidate.phase, candidate.source, frozenset(candidate.answers.items())),
                leader
                and (
                    leader.epoch,
                    frozenset(leader.stored.items()),
                    leader.following,
                    leader.joining,
                    frozenset(leader.open),
                    leader.serving,
                ),
            )
        files = tuple((*file[:3], len(file.octets), file.synced) for file in disk.files)
        nodes.append((files, disk.noted, node.writing, node.ops, tuple(sorted(node.sent.items())), state))
    lives = {name: node.life for name, node in world.nodes.items()}
    return (
        tuple(nodes),
        frozenset(world.links.items()),
        frozenset((one.node, one.life == lives[one.node], one.what) for one in world.requests),
        frozenset((one.node, one.what, one.value) for one in world.answers if one.life == lives[one.node]),
        (world.blocked, world.shut),
        world.value,
        world.done,
        world.commits,
        failures,
    )


class Found(NamedTuple):
    """Progress of a search.

    Attributes:
        states: number of distinct states.
        steps: number of steps tried.
        depth: steps of the longest history.
        wrong: the shortest wrong history, and the violated invariant.
    """

    states: int
    steps: int
    depth: int
    whole: bool
    wrong: tuple[list[Step], str] | None


def begun(names: str, parts: Parts = REAL) -> World:
    """Return a world in which the first replica leads and the others follow in the set."""
    world = World(names, parts, eager=True)
    for pair in combinations(names, 2):
        apply(world, ("connect", *pair))
    apply(world, ("take_over", names[0]))
    apply(world, ("land", 0))
    while world.nodes[names[0]].ops:
        apply(world, ("complete", names[0]))
    assert world.nodes[names[0]].writing
    return world


def search(
    names: str, limits: Limits, *, parts: Parts = REAL, most: int = 1 << 62, seconds: float = float("inf")
) -> Found:
    """Try all histories within the limits, or as many states as are asked for."""
    start = begun(names, parts)
    frontier: list[tuple[World, int, Any]] = [(start, 0, None)]
    seen = {hash(key(start, 0))}
    steps = depth = 0
    until = time.monotonic() + seconds
    while frontier:
        following: list[tuple[World, int, Any]] = []
        for world, failures, past in frontier:
            for step in choices(world, limits, failures):
                steps += 1
                new = world.clone()
                history = (past, step)
                try:
                    apply(new, step)
                except (Wrong, AssertionError, LookupError) as error:
                    return Found(len(seen), steps, depth, False, (_unrolled(history), repr(error)))
                now = failures + (step[0] in FAILURES)
                mark = hash(key(new, now))
                if mark not in seen:
                    seen.add(mark)
                    following.append((new, now, history))
            if len(seen) > most or time.monotonic() > until:
                return Found(len(seen), steps, depth, False, None)
        frontier, depth = following, depth + 1
    return Found(len(seen), steps, depth, True, None)


def _unrolled(history: Any) -> list[Step]:
    steps = []
    while history is not None:
        history, step = history
        steps.append(step)
    return steps[::-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=2)
    for name, value in Limits()._asdict().items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--states", type=int, default=1 << 62, help="at most")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="at most")
    options = vars(parser.parse_args())
    limits = Limits(**{name: options[name] for name in Limits._fields})
    began = time.monotonic()
    found = search("abcde"[: options["nodes"]], limits, most=options["states"], seconds=options["seconds"])
    took = time.monotonic() - began
    print(
        f"{found.states} states, {found.steps} steps in {took:.1f} s ({found.steps / took:.0f}/s), depth {found.depth}"
    )
    print("all histories" if found.whole else "not all histories")
    if found.wrong is not None:
        print(found.wrong[1], *found.wrong[0], sep="\n")
    return int(found.wrong is not None)


if __name__ == "__main__":
    sys.exit(main())
