"""Cut links between processes of this machine: packets are lost without a notice to either end."""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache

from jumpmq.testing.processes import ending_with_us

FIRST_GROUP = 61_000
"""First system group of the nodes; every node runs with its own group, to identify its packets."""

FIRST_MARK = 0x61000
"""First mark of their connections."""


def run_as(number: int, command: Sequence[str]) -> list[str]:
    """A command as the node with this number."""
    own = ["setpriv", "--regid", str(FIRST_GROUP + number), "--clear-groups"]
    return [*own, *ending_with_us(list(command))]  # again: a change of group clears the death signal


class Cuts:
    """Links between nodes that can be cut.

    Args:
        to: iptables rules of packets to the nodes: ``--dport PORT``, or ``-d ADDRESS``.
    """

    def __init__(self, to: Sequence[str]) -> None:
        self._to = to
        self._stack = ExitStack()

    def __enter__(self) -> "Cuts":
        """Mark new connections with their two nodes."""
        for begins in range(len(self._to)):
            for accepts, where in enumerate(self._to):
                owner = f"-m owner --gid-owner {FIRST_GROUP + begins}"
                mark = f"-j CONNMARK --set-mark {self._mark(begins, accepts)}"
                self._stack.enter_context(_rule(f"-p tcp {where} --syn {owner} {mark}"))
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def _mark(self, begins: int, accepts: int) -> int:
        return FIRST_MARK + len(self._to) * begins + accepts

    @contextmanager
    def cut(self, sends: int, receives: int) -> Iterator[None]:
        """Drop the packets from a node to another within the block."""
        with ExitStack() as stack:
            for begins, accepts, way in ((sends, receives, "ORIGINAL"), (receives, sends, "REPLY")):
                of = f"-m connmark --mark {self._mark(begins, accepts)} -m conntrack --ctdir {way}"
                stack.enter_context(_rule(f"-p tcp {of} -j DROP"))
            yield


@cache
def can_cut() -> bool:
    """Return true if this user may cut connections on this machine."""
    if shutil.which("iptables") is None or shutil.which("setpriv") is None:
        return False
    try:
        with Cuts(["--dport 9"]) as cuts, cuts.cut(0, 0):
            return True
    except subprocess.CalledProcessError:
        return False


@contextmanager
def _rule(words: str) -> Iterator[None]:
    subprocess.run(["iptables", "-w", "-A", "OUTPUT", *words.split()], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["iptables", "-w", "-D", "OUTPUT", *words.split()], check=True, capture_output=True)
