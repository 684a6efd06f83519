"""Virtual hosts, exchanges, queues, bindings and users: state and rules, no I/O."""

from jumpmq.topology.arguments import Arguments
from jumpmq.topology.bindings import Binding
from jumpmq.topology.changes import (
    AddHome,
    AddVirtualHost,
    Bind,
    Change,
    ClearGlobalParameter,
    ClearOperatorPolicy,
    ClearPermissions,
    ClearPolicy,
    ClearTopicPermissions,
    ClearUserLimit,
    ClearVirtualHostLimit,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    DeleteUser,
    DeleteVirtualHost,
    ForgetNode,
    PutUser,
    SetGlobalParameter,
    SetOperatorPolicy,
    SetPermissions,
    SetPolicy,
    SetTopicPermissions,
    SetTracing,
    SetUserLimit,
    SetVirtualHostLimit,
    Unbind,
)
from jumpmq.topology.definitions import ExchangeDefinition, QueueDefinition
from jumpmq.topology.exchanges import ConsistentHashExchange, Exchange
from jumpmq.topology.policies import InForce, InvalidPolicy, Policy
from jumpmq.topology.proposals import THE_BROKER, Asker, Pending
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
    "Asker",
    "Bind",
    "Binding",
    "Change",
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
    "Exchange",
    "ExchangeDefinition",
    "ForgetNode",
    "InForce",
    "InvalidPolicy",
    "Pending",
    "Permissions",
    "Policy",
    "PutUser",
    "QueueDefinition",
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
