"""Comparison of the copies of homes by checksums, in the background.

Each process with a copy reports the lengths of the copy's files, and checksums of parts. The process with the request
compares the checksums. Differences are checked again after some seconds, because a file may have been removed or cut
during the comparison. Equal files are verified by their own checksums: all copies may have the same damage.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from jumpmq.broker.copies import CopyFiles

PART = 4 << 20
"""Maximum octets per compared part."""

FINEST = 4096
"""Octets to which a difference is narrowed down."""

REST = 1.0
"""Pause after each comparison, as a multiple of the comparison's duration: other work gets half of the time."""

AGAIN = 3.0
"""Seconds until a difference is checked again."""

NAMED = 100
"""Maximum number of reported differences."""

AskCheck = Callable[..., Awaitable[Any]]
"""Runs an operation on copies (:mod:`jumpmq.nodes.management.acting`) in all reachable processes, including the local
process; returns the list of results.
"""

Part = tuple[str, int, int]
"""Name of a file, offset and length of a part of it."""

log = logging.getLogger(__name__)


@dataclass
class CopyCheck:
    """Comparison of the copies of a home.

    Attributes:
        started_at: time of the start, in seconds since the epoch.
        state: ``running``, ``equal``, ``damaged`` (equal copies with the same damage), ``different``, or ``failed``.
        nodes: nodes of the compared copies.
        files, octets: amounts to compare. All copies of an octet count once.
        compared: octets compared so far, counted in the same way.
        differences: differing parts: file, offset, length, checksum by node, and nodes whose file is damaged by the
            file's own checksums.
        damaged: equal files that are damaged by their own checksums.
        reason: reason of a failure.
    """

    home: int
    started_at: float
    state: str = "running"
    nodes: list[str] = field(default_factory=list)
    files: int = 0
    octets: int = 0
    compared: int = 0
    differences: list[dict[str, Any]] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    reason: str = ""


class CopyChecks:
    """Comparisons of copies begun by the local process: the latest for each home."""

    def __init__(self) -> None:
        self.of: dict[int, CopyCheck] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, home: int, ask: AskCheck) -> None:
        """Begin to compare the copies of a home, unless a comparison is running."""
        if home in self.of and self.of[home].state == "running":
            return
        self.of[home] = check = CopyCheck(home, time.time())
        task = asyncio.get_running_loop().create_task(_run(check, ask), name=f"check of home {home}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _run(check: CopyCheck, ask: AskCheck) -> None:
    try:
        await _compare(check, ask)
    except Exception as error:
        log.exception("the copies of home %d could not be compared", check.home)
        check.state, check.reason = "failed", str(error)
    else:
        log.info("home %d: copies on %s are %s", check.home, ", ".join(check.nodes), check.state)


async def _compare(check: CopyCheck, ask: AskCheck) -> None:
    told: list[CopyFiles] = [CopyFiles(*one) for one in await ask("copy_files", check.home)]
    copies = {one.node: one.lengths for one in told}
    check.nodes = sorted(copies)
    if len(copies) < 2:
        who = check.nodes[0] if copies else "no node"
        raise CheckFailed(f"only {who} answers about its copy of home {check.home}")
    common: dict[str, int] = {}
    for name in sorted({name for lengths in copies.values() for name in lengths}):
        lengths = [lengths[name] for lengths in copies.values() if name in lengths]
        if len(lengths) > 1 and min(lengths):
            common[name] = min(lengths)
    check.files, check.octets = len(common), sum(common.values())
    suspects: list[Part] = []
    for name, length in common.items():
        for offset in range(0, length, PART):
            part = name, offset, min(PART, length - offset)
            began = time.monotonic()
            if await _differ(check.home, part, ask):
                suspects.append(part)
            check.compared += part[2]
            await asyncio.sleep(REST * (time.monotonic() - began))
        began = time.monotonic()
        if not (suspects and suspects[-1][0] == name) and await _damaged(check.home, name, length, ask):
            check.damaged.append(name)
        await asyncio.sleep(REST * (time.monotonic() - began))
    if suspects:
        await asyncio.sleep(AGAIN)
    for part in suspects[:NAMED]:
        if await _differ(check.home, part, ask):
            check.differences.append(await _difference(check.home, part, ask))
    check.state = "different" if check.differences else "damaged" if check.damaged else "equal"


class CheckFailed(Exception):
    """Copies cannot be compared; the text is the reason."""


async def _sums(home: int, part: Part, ask: AskCheck) -> dict[str, int]:
    """Return the checksum of a part of a file, by node."""
    found = [(node, crc) for node, crc in await ask("copy_checksum", home, *part) if crc is not None]
    return dict(found)


async def _differ(home: int, part: Part, ask: AskCheck) -> bool:
    return len(set((await _sums(home, part, ask)).values())) > 1


async def _difference(home: int, part: Part, ask: AskCheck) -> dict[str, Any]:
    """Return a description of a difference, narrowed down to the first differing octets."""
    name, offset, length = part
    while length > FINEST:
        half = length // 2
        if await _differ(home, (name, offset, half), ask):
            length = half
        else:
            offset, length = offset + half, length - half
    sums = await _sums(home, (name, offset, length), ask)
    damaged = await _damaged(home, name, offset + length, ask)
    checksums = {node: f"{crc:08x}" for node, crc in sorted(sums.items())}
    return {"file": name, "offset": offset, "length": length, "checksums": checksums, "damaged": damaged}


async def _damaged(home: int, name: str, length: int, ask: AskCheck) -> list[str]:
    """Return the nodes whose first octets of a file are not as they were written."""
    return sorted({node for node, is_damaged in await ask("copy_damaged", home, name, length) if is_damaged})
