"""Changes of definitions: a class each, in files by subject. :meth:`Topology.propose` is the only way to apply them.

A class has all that belongs to its change: fields, rights, check, effect, records of the effect, and inverse
(:class:`~jumpmq.topology.changes.base.Change` says when each is called).

The values hold plain data only, and all that their effect depends on, so that a log of them can be replayed in another
process, in the same order, to the same state: a queue brings its home, a user the hash of the password. What only a
queue's home can judge (whether it is in use, or empty) is judged before there is a change.

``connection`` is the identity of the connection that asks; None is the broker itself or an operator, who may touch
exclusive queues.
"""

from jumpmq.topology.changes.base import Change, ChangeInSteps, inverse_of_effects
from jumpmq.topology.changes.bindings import Bind, Unbind
from jumpmq.topology.changes.exchanges import DeclareExchange, DeleteExchange
from jumpmq.topology.changes.homes import AddHome, ForgetNode, HomeDown, LeaveHome, RemoveHome
from jumpmq.topology.changes.parameters import ClearGlobalParameter, SetGlobalParameter
from jumpmq.topology.changes.policies import ClearOperatorPolicy, ClearPolicy, SetOperatorPolicy, SetPolicy
from jumpmq.topology.changes.queues import DeclareQueue, DeleteQueue, EndMove, MoveQueue, queue_deletion, refuse_move
from jumpmq.topology.changes.users import (
    ClearPermissions,
    ClearTopicPermissions,
    ClearUserLimit,
    DeleteUser,
    PutUser,
    SetPermissions,
    SetTopicPermissions,
    SetUserLimit,
)
from jumpmq.topology.changes.virtual_hosts import (
    AddVirtualHost,
    ClearVirtualHostLimit,
    DeleteVirtualHost,
    SetTracing,
    SetVirtualHostLimit,
)

__all__ = [
    "AddHome",
    "AddVirtualHost",
    "Bind",
    "Change",
    "ChangeInSteps",
    "ClearGlobalParameter",
    "ClearOperatorPolicy",
    "ClearPermissions",
    "ClearPolicy",
    "ClearTopicPermissions",
    "ClearUserLimit",
    "ClearVirtualHostLimit",
    "DeclareExchange",
    "DeclareQueue",
    "DeleteExchange",
    "DeleteQueue",
    "DeleteUser",
    "DeleteVirtualHost",
    "EndMove",
    "ForgetNode",
    "HomeDown",
    "LeaveHome",
    "MoveQueue",
    "PutUser",
    "RemoveHome",
    "SetGlobalParameter",
    "SetOperatorPolicy",
    "SetPermissions",
    "SetPolicy",
    "SetTopicPermissions",
    "SetTracing",
    "SetUserLimit",
    "SetVirtualHostLimit",
    "Unbind",
    "inverse_of_effects",
    "queue_deletion",
    "refuse_move",
]
