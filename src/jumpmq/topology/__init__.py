"""Virtual hosts, exchanges, queues, bindings and users: state and rules, no I/O."""

from jumpmq.topology.arguments import Arguments
from jumpmq.topology.bindings import Binding
from jumpmq.topology.changes.base import Change
from jumpmq.topology.changes.bindings import Bind, Unbind
from jumpmq.topology.changes.exchanges import DeclareExchange, DeleteExchange
from jumpmq.topology.changes.homes import AddHome, ForgetNode, HomeDown, LeaveHome, RemoveHome
from jumpmq.topology.changes.parameters import ClearGlobalParameter, SetGlobalParameter
from jumpmq.topology.changes.policies import ClearOperatorPolicy, ClearPolicy, SetOperatorPolicy, SetPolicy
from jumpmq.topology.changes.queues import DeclareQueue, DeleteQueue, EndMove, MoveQueue
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
from jumpmq.topology.definitions import ExchangeDefinition, QueueDefinition
from jumpmq.topology.exchanges import ConsistentHashExchange, Exchange
from jumpmq.topology.policies import InForce, InvalidPolicy, Policy
from jumpmq.topology.proposals import THE_BROKER, ChangePrincipal, Pending
from jumpmq.topology.routing import Routes
from jumpmq.topology.sharding import Shard
from jumpmq.topology.topology import Topology
from jumpmq.topology.users import Permissions, TopicPermissions, User
from jumpmq.topology.vhost import VirtualHost

__all__ = [
    "THE_BROKER",
    "AddHome",
    "AddVirtualHost",
    "Arguments",
    "Bind",
    "Binding",
    "Change",
    "ChangePrincipal",
    "ClearGlobalParameter",
    "ClearOperatorPolicy",
    "ClearPermissions",
    "ClearPolicy",
    "ClearTopicPermissions",
    "ClearUserLimit",
    "ClearVirtualHostLimit",
    "ConsistentHashExchange",
    "DeclareExchange",
    "DeclareQueue",
    "DeleteExchange",
    "DeleteQueue",
    "DeleteUser",
    "DeleteVirtualHost",
    "EndMove",
    "Exchange",
    "ExchangeDefinition",
    "ForgetNode",
    "HomeDown",
    "InForce",
    "InvalidPolicy",
    "LeaveHome",
    "MoveQueue",
    "Pending",
    "Permissions",
    "Policy",
    "PutUser",
    "QueueDefinition",
    "RemoveHome",
    "Routes",
    "SetGlobalParameter",
    "SetOperatorPolicy",
    "SetPermissions",
    "SetPolicy",
    "SetTopicPermissions",
    "SetTracing",
    "SetUserLimit",
    "SetVirtualHostLimit",
    "Shard",
    "TopicPermissions",
    "Topology",
    "Unbind",
    "User",
    "VirtualHost",
]
