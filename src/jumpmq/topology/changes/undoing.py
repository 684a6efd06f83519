"""Undoing of changes after the failure of a later change, in an import or on a ring."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jumpmq.topology.changes.base import Change
from jumpmq.topology.changes.bindings import Bind
from jumpmq.topology.changes.exchanges import DeclareExchange

if TYPE_CHECKING:
    from jumpmq.topology.state import State


def inverse(state: State, change: Change) -> list[Change]:
    """Return the changes undoing a change, to be applied in reverse order; called before :meth:`Change.effect`.

    Raises:
        AMQPError: see :meth:`Change.inverse`.
    """
    changes = change.inverse(state)
    if changes and isinstance(change, Bind):
        source = state.vhost(change.vhost).exchanges[change.binding.source]
        if source.auto_delete:  # an unbinding deletes the exchange with its last binding: declared again afterwards
            changes.insert(0, DeclareExchange(source.definition))
    return changes


def inverse_of_effects(effects: list[Change]) -> list[Change]:
    """Return the undoing changes that depend on the effects of a proposed change, unlike :meth:`Change.inverse`.

    They are applied in reverse order, before the inverse.

    Args:
        effects: the proposed change as it took effect, and the changes that followed.
    """
    return [back for at, one in enumerate(effects) for back in one.inverse_of_effect(followed=at > 0)]
