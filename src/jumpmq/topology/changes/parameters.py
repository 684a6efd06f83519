"""Changes of the broker's global parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from jumpmq.amqp.errors import NotFound
from jumpmq.topology.changes.base import Change

if TYPE_CHECKING:
    from jumpmq.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class SetGlobalParameter(Change):
    """Set a global parameter of the broker, such as ``cluster_name``.

    Attributes:
        value: any JSON, perhaps with passwords in URLs.
    """

    UNAUDITED: ClassVar[frozenset[str]] = frozenset({"value"})

    name: str
    value: Any

    def effect(self, topology: Topology) -> None:
        topology.global_parameters[self.name] = self.value
        topology.records.put_global_parameter(self.name, self.value)

    def inverse(self, topology: Topology) -> list[Change]:
        if self.name not in topology.global_parameters:
            return [ClearGlobalParameter(self.name)]
        return [SetGlobalParameter(self.name, topology.global_parameters[self.name])]


@dataclass(frozen=True, slots=True)
class ClearGlobalParameter(Change):
    """Take a global parameter away."""

    name: str

    def check(self, topology: Topology) -> None:
        if self.name not in topology.global_parameters:
            raise NotFound(f"no global parameter '{self.name}'")

    def effect(self, topology: Topology) -> None:
        del topology.global_parameters[self.name]
        topology.records.delete_global_parameter(self.name)
