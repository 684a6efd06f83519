"""Bindings: destinations of an exchange, with conditions."""

import sys
from dataclasses import dataclass
from typing import Literal

from jumpmq.topology.arguments import NO_ARGUMENTS, Arguments

DestinationKind = Literal["queue", "exchange"]


@dataclass(frozen=True, slots=True)
class Binding:
    """A binding. Bindings with equal parts are equal.

    Attributes:
        source: name of the source exchange.
        kind, destination: kind and name of the destination.
        key: the binding key, 0 to 255 octets.
        arguments: sorted by name, so that bindings with another order are equal.
    """

    source: str
    kind: DestinationKind
    destination: str
    key: bytes = b""
    arguments: Arguments = NO_ARGUMENTS

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", sys.intern(self.source))  # shared by all bindings
        object.__setattr__(self, "destination", sys.intern(self.destination))
        if len(self.arguments) > 1:
            object.__setattr__(self, "arguments", self.arguments.sorted())
