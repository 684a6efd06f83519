"""Base class of all changes of definitions, and their form in logs."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from jumpmq.topology.json_form import from_json, to_json
from jumpmq.topology.rights import Right, TopicRight

if TYPE_CHECKING:
    from jumpmq.topology.state import State


class Change:
    """A change of definitions: a frozen dataclass with slots.

    The name of the class is the name in logs of definitions, in audit lines and in the broker's log: together with the
    names of the fields it must never change. No clock, random number or name of the local node may have a say in
    :meth:`check` and :meth:`effect`: processes that decide the same log must reach the same definitions.
    """

    __slots__ = ()

    KINDS: ClassVar[dict[str, type[Change]]] = {}
    """All classes, by name."""

    UNAUDITED: ClassVar[frozenset[str]] = frozenset({"connection"})
    """Fields omitted from audit lines: secrets, and the author, who is named anyway."""

    def __init_subclass__(cls) -> None:
        # ``dataclass(slots=True)`` copies the class once it has fields. Common bases are no kinds.
        if "__dataclass_fields__" in vars(cls) and not cls.__name__.startswith("_"):
            Change.KINDS[cls.__name__] = cls

    def refuse_for_all(self) -> None:
        """Refuse the change if no user may make it, before a client's rights are looked at: RabbitMQ's order.

        Raises:
            AMQPError: with the reason.
        """

    def rights(self, state: State) -> Iterator[Right | TopicRight]:
        """Yield the rights needed for the change over any protocol, in the order of checking.

        Changes by operators need none: the management API checks the tags of operators.

        Raises:
            AMQPError: no user may make the change; RabbitMQ says so after the rights yielded before.
        """
        return iter(())

    def check(self, state: State) -> None:
        """Refuse the change if it conflicts with the definitions. Rules, order and texts are RabbitMQ 3.10's.

        Raises:
            AMQPError: with the reason.
        """

    def refuse_own_end(self, state: State) -> None:
        """Refuse a change that removes the local node. Other nodes accept it; the local node then diverges and stops.

        Raises:
            PreconditionFailed: the change does that.
        """

    def effect(self, state: State) -> Change | None:
        """Apply the checked change to memory and records, in one step.

        Returns:
            The change as it took effect, where that differs; otherwise None.
        """
        raise NotImplementedError

    def inverse(self, state: State) -> list[Change]:
        """Return the changes undoing this change alone; called before :meth:`effect`, by :func:`undoing.inverse`.

        Only changes that add or replace have an inverse, and unbinding.

        Raises:
            AMQPError: there is no such virtual host or user; :meth:`check` would refuse the change.
        """
        raise NotImplementedError

    def inverse_of_effect(self, *, followed: bool) -> list[Change]:
        """Return the undoing changes that depend on the effect, unlike :meth:`inverse`.

        Args:
            followed: True if the change was not proposed, but followed from a proposed one.
        """
        return []

    def changes_nothing(self, state: State) -> bool:
        """Return True for a change without effect on the definitions. Only for changes that add or replace.

        Raises:
            AMQPError: as :meth:`inverse`; or the definition exists with other properties.
        """
        return self.inverse(state) == [self]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: the fields, with the kind under ``change``."""
        return {"change": type(self).__name__, **to_json(self)}

    @staticmethod
    def from_json(value: dict[str, Any]) -> Change:
        """The inverse of :meth:`to_json`."""
        return from_json(Change.KINDS[value["change"]], {key: value[key] for key in value if key != "change"})


Steps = Generator[None, None, list[Change]]
"""Steps of an effect, returning the consequent changes."""


class ChangeInSteps(Change):
    """A change with many consequences, taking effect in steps.

    Between the steps others are served, with the definitions as they were before.
    """

    __slots__ = ()

    def steps(self, state: State) -> Steps:
        """Apply the checked change to memory and records, step by step; return the consequent changes."""
        raise NotImplementedError


def take_effect(state: State, change: Change) -> Steps:
    """Apply a checked change, in one step or in several.

    Returns:
        The change as it took effect, and those that followed.
    """
    if isinstance(change, ChangeInSteps):
        with state.records.aside():
            return [change, *(yield from change.steps(state))]
    return [change.effect(state) or change]
