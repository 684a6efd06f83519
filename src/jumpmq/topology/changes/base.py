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

    The class's name is the change's name in logs of definitions, in audit lines and in the broker's log. It must never
    change, nor must the names of the fields. :meth:`check` and :meth:`effect` must not depend on a clock, random
    numbers or the name of the local node: all processes that decide the same log have to reach the same definitions.
    """

    __slots__ = ()

    KINDS: ClassVar[dict[str, type[Change]]] = {}
    """All classes, by name."""

    UNAUDITED: ClassVar[frozenset[str]] = frozenset({"connection"})
    """Fields omitted from audit lines: secrets, and the author, who is named separately."""

    def __init_subclass__(cls) -> None:
        # ``dataclass(slots=True)`` copies the class once it has fields. Common bases are no kinds.
        if "__dataclass_fields__" in vars(cls) and not cls.__name__.startswith("_"):
            Change.KINDS[cls.__name__] = cls

    def refuse_for_all(self) -> None:
        """Refuse a change that no user may make, before the client's rights are checked, as in RabbitMQ's order.

        Raises:
            AMQPError: with the reason.
        """

    def rights(self, state: State) -> Iterator[Right | TopicRight]:
        """Yield the rights needed for the change over any protocol, in the order of checking.

        Changes by operators need none: the management API checks the tags of operators.

        Raises:
            AMQPError: no user may make the change; RabbitMQ checks this after the rights yielded before.
        """
        return iter(())

    def check(self, state: State) -> None:
        """Refuse the change if it conflicts with the definitions. Rules, order and texts are RabbitMQ's.

        Raises:
            AMQPError: with the reason.
        """

    def refuse_own_end(self, state: State) -> None:
        """Refuse a change that removes the local node, before the change enters the log. If another node has put such a
        change into the log, the local node stops.

        Raises:
            PreconditionFailed: the change removes the local node.
        """

    def effect(self, state: State) -> Change | None:
        """Apply the checked change to memory and records, in one step.

        Returns:
            The change as it took effect, if different; otherwise None.
        """
        raise NotImplementedError

    def inverse(self, state: State) -> list[Change]:
        """Return the changes undoing this change alone; called before :meth:`effect`, by :func:`undoing.inverse`.

        Only changes that add or replace have an inverse, and so has unbinding.

        Raises:
            AMQPError: the virtual host or user does not exist; :meth:`check` would refuse the change.
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
            AMQPError: as :meth:`inverse`; or the definition exists with different properties.
        """
        return self.inverse(state) == [self]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: the fields, with the kind under ``change``."""
        return {"change": type(self).__name__, **to_json(self)}

    @staticmethod
    def from_json(value: dict[str, Any]) -> Change:
        """Return the change of a JSON value of :meth:`to_json`."""
        return from_json(Change.KINDS[value["change"]], {key: value[key] for key in value if key != "change"})


Steps = Generator[None, None, list[Change]]
"""Steps of an effect, returning the consequent changes."""


class ChangeInSteps(Change):
    """A change with many consequences, taking effect in steps.

    Between the steps clients are served, with the definitions as before the change.
    """

    __slots__ = ()

    def steps(self, state: State) -> Steps:
        """Apply the checked change to memory and records, step by step; return the consequent changes."""
        raise NotImplementedError


def take_effect(state: State, change: Change) -> Steps:
    """Apply a checked change, in one or several steps.

    Returns:
        The change as it took effect, and the changes that followed from it.
    """
    if isinstance(change, ChangeInSteps):
        with state.records.aside():
            return [change, *(yield from change.steps(state))]
    return [change.effect(state) or change]
