"""Warnings of homes with missing or too few copies."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from jumpmq.broker.copies import HomeCopies
from jumpmq.http.warnings.warning import Warning

_DOES = {"away": "is away", "joining": "fetches missing data", "eligible": "is behind"}
"""Descriptions of the states of a missing copy."""


def of_copies(homes: Collection[HomeCopies], down: Collection[int] = ()) -> Iterator[Warning]:
    """Yield the warnings of homes with copies: one per seat of homes below ``min``, one per missing node, one per
    running node whose home another node serves, and one per copy with a problem.

    Args:
        down: numbers of the homes that no node serves.
    """
    for home in homes:
        for node, trouble in home.troubles.items():
            advice = "The step is retried; the warning ends a minute after success."
            if node in home.damaged:
                advice = _of_damage(home)
            kind = "copy-damaged" if node in home.damaged else "copy-troubled"
            yield Warning(kind, "warning", "node", "", node, f"Copy of home {home.home}: {trouble}.", advice)
    stand, lack = dict[str, list[HomeCopies]](), dict[str, list[HomeCopies]]()
    for home in homes:
        if len(home.members) > 1 and home.in_set < len(home.members):
            for name in [home.seat] if home.stands else _missing(home):
                (stand if home.stands else lack).setdefault(name, []).append(home)
    for seat, of_seat in stand.items():
        counts = [
            f"home {one.home}: {one.in_set} of at least {one.min} copies are there"
            + (", and no node serves the home" if one.home in down else "")
            for one in of_seat
        ]
        missing = {node: _DOES[state] for one in of_seat for node, state in _missing(one).items()}
        missing |= {node: "has a damaged copy" for one in of_seat for node in _missing(one) if node in one.damaged}
        nodes = ", ".join(f"{node} {does}" for node, does in missing.items())
        asked = [f"set_copies {one.wanted_copies} --home {one.home} --min {max(one.in_set, 1)}" for one in of_seat]
        advice = (
            f"Start the missing nodes: {nodes}. Copies join by themselves. If a node is lost for good, "
            f"{', '.join(f'`jumpmqctl {one}`' for one in asked)} asks for no more than the remaining copies."
        )
        text = f"Nothing is confirmed at {'; '.join(counts)}."
        yield Warning("copies-below-min", "alarm", "node", "", seat, text, advice)
    for node, of_node in lack.items():
        counts = [f"home {one.home} has {one.in_set} of {len(one.members)} copies" for one in of_node]
        state = "away" if any(one.members[node] == "away" for one in of_node) else of_node[0].members[node]
        text = f"{node} {_DOES[state]}: {', '.join(counts)}."
        advice = "Its copies catch up by themselves. Meanwhile the other copies store what is confirmed."
        if state == "away":
            ends = ""
            if any(one.seat == node for one in of_node):
                ends = f"`jumpmqctl drain --node {node}` and `jumpmqctl forget_cluster_node {node}` end its home, "
            advice = (
                f"Start {node}. {advice} If {node} is lost for good, {ends}`jumpmqctl grow NODE all` makes copies at "
                f"another node, and then `jumpmqctl shrink {node}` ends this warning."
            )
        yield Warning("copies-missing", "warning", "node", "", node, text, advice)
    yield from _served_elsewhere(homes)


def _served_elsewhere(homes: Collection[HomeCopies]) -> Iterator[Warning]:
    """Yield a warning per running node whose homes other nodes serve, unless an operator wants that."""
    found = dict[str, list[HomeCopies]]()
    for home in homes:
        if home.leader != home.seat and home.members[home.seat] == "in set" and home.wanted_leader in ("", home.seat):
            found.setdefault(home.seat, []).append(home)
    for seat, of_seat in found.items():
        served = ", ".join(f"home {one.home} is served by {one.leader}" for one in of_seat)
        text = f"{seat} runs, and waits with its ports closed: {served}."
        advice = (
            f"The homes return to {seat} after {seat} has kept up for 30 seconds, but an hour after a third failure "
            f"within an hour. At once: `jumpmqctl transfer_leadership {of_seat[0].home} {seat}`."
        )
        yield Warning("served-elsewhere", "warning", "node", "", seat, text, advice)


def _of_damage(home: HomeCopies) -> str:
    """Return the advice for a damaged copy of a home."""
    if home.damaged >= {node for node, state in home.members.items() if state in ("leader", "in set", "eligible")}:
        return (
            "All complete copies are damaged: all readable messages are served, `jumpmqctl list_losses` names the "
            f"others, and `jumpmqctl check_copies {home.home}` the damaged files. A file without damage at another "
            "node can be copied from there by hand."
        )
    return "The copy is made again from another one, as soon as the set has a copy to spare."


def _missing(home: HomeCopies) -> dict[str, str]:
    """Return the states of the copies that are not in the set, by node."""
    return {node: state for node, state in home.members.items() if state in _DOES}
