"""Links between processes of this machine that are cut: packets are lost, and neither end is told."""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache

from jumpmq.testing.processes import ending_with_us

FIRST_GROUP = 61_000
"""Of the groups of the system as which nodes run, each as one of its own, so that its packets can be told."""

FIRST_MARK = 0x61000
"""Of the marks that their connections get."""


def run_as(number: int, command: Sequence[str]) -> list[str]:
    """A command as the node of this number."""
    own = ["setpriv", "--regid", str(FIRST_GROUP + number), "--clear-groups"]
    return [*own, *ending_with_us(list(command))]  # once more: a process of another group is not ended with us


class Cuts:
    """Links between nodes that can be cut.

    Args:
        to: how iptables tells packets to each node: ``--dport PORT``, or ``-d ADDRESS``.
    """

    def __init__(self, to: Sequence[str]) -> None:
        self._to = to
        self._stack = ExitStack()

    def __enter__(self) -> "Cuts":
        """Mark connections from now on with who has made them, and to whom."""
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
        """Lose within the block what one node sends to another."""
        with ExitStack() as stack:
            for begins, accepts, way in ((sends, receives, "ORIGINAL"), (receives, sends, "REPLY")):
                of = f"-m connmark --mark {self._mark(begins, accepts)} -m conntrack --ctdir {way}"
                stack.enter_context(_rule(f"-p tcp {of} -j DROP"))
            yield


@cache
def can_cut() -> bool:
    """True if this user may cut connections on this machine."""
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
