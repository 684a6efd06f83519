"""Changes of the broker's global parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from jumpmq.amqp.errors import NotFound
from jumpmq.topology.changes.base import Change

if TYPE_CHECKING:
    from jumpmq.topology.state import State


@dataclass(frozen=True, slots=True)
class SetGlobalParameter(Change):
    """Set a global parameter of the broker, such as ``cluster_name``.

    Attributes:
        value: any JSON, possibly with passwords in URLs.
    """

    UNAUDITED: ClassVar[frozenset[str]] = frozenset({"value"})

    name: str
    value: Any

    def effect(self, state: State) -> None:
        state.global_parameters[self.name] = self.value
        state.records.put_global_parameter(self.name, self.value)

    def inverse(self, state: State) -> list[Change]:
        if self.name not in state.global_parameters:
            return [ClearGlobalParameter(self.name)]
        return [SetGlobalParameter(self.name, state.global_parameters[self.name])]


@dataclass(frozen=True, slots=True)
class ClearGlobalParameter(Change):
    """Remove a global parameter."""

    name: str

    def check(self, state: State) -> None:
        if self.name not in state.global_parameters:
            raise NotFound(f"no global parameter '{self.name}'")

    def effect(self, state: State) -> None:
        del state.global_parameters[self.name]
        state.records.delete_global_parameter(self.name)
