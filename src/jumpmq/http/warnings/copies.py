"""Warnings of homes with missing or too few copies."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from jumpmq.broker.copies import HomeCopies
from jumpmq.http.warnings.warning import Warning

_DOES = {"away": "is away", "joining": "copies missing data", "eligible": "is behind"}
"""Descriptions of the states of a missing copy."""


def of_copies(homes: Collection[HomeCopies]) -> Iterator[Warning]:
    """Yield the warnings of homes with copies: at most one of each kind per seat, and one for each copy in trouble."""
    for home in homes:
        for node, trouble in home.troubles.items():
            advice = "The step is tried again; the warning ends a minute after success."
            yield Warning("copy-troubled", "warning", "node", "", node, f"Copy of home {home.home}: {trouble}.", advice)
    stand, lack = dict[str, list[HomeCopies]](), dict[str, list[HomeCopies]]()
    for home in homes:
        if len(home.members) > 1 and home.in_set < len(home.members):
            (stand if home.stands else lack).setdefault(home.seat, []).append(home)
    for seat, of_seat in stand.items():
        counts = [f"home {one.home}: {one.in_set} of at least {one.min} copies are there" for one in of_seat]
        advice = (
            f"Start the missing nodes: {_missing(of_seat)}. Copies join by themselves. If a node is lost for good, "
            + ("`jumpmqctl set_copies COUNT --home HOME --min MIN` asks for no more than the remaining copies.")
        )
        text = f"Nothing is confirmed at {'; '.join(counts)}."
        yield Warning("copies-below-min", "alarm", "node", "", seat, text, advice)
    for seat, of_seat in lack.items():
        counts = [f"home {one.home} has {one.in_set} of {len(one.members)} copies" for one in of_seat]
        text = f"{seat}: {'; '.join(counts)}; {_missing(of_seat)}."
        advice = "Confirmed messages are stored by the other copies. A copy catches up by itself once its node runs."
        yield Warning("copies-missing", "warning", "node", "", seat, text, advice)


def _missing(homes: Iterable[HomeCopies]) -> str:
    """Describe the copies that are not in the set."""
    found = {node: state for home in homes for node, state in home.members.items() if state in _DOES}
    return ", ".join(f"{node} {_DOES[state]}" for node, state in found.items())
