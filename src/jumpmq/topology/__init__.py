"""Virtual hosts, exchanges, queues, bindings and users: state and rules, no I/O."""

from jumpmq.topology.arguments import Arguments
from jumpmq.topology.bindings import Binding
from jumpmq.topology.changes import (
    AddVirtualHost,
    Bind,
    Change,
    ClearPermissions,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    DeleteUser,
    DeleteVirtualHost,
    PutUser,
    SetPermissions,
    Unbind,
)
from jumpmq.topology.exchanges import ConsistentHashExchange, Exchange
from jumpmq.topology.routing import Routes
from jumpmq.topology.topology import Topology
from jumpmq.topology.users import Permissions, User
from jumpmq.topology.vhost import VirtualHost

__all__ = [
    "AddVirtualHost",
    "Arguments",
    "Bind",
    "Binding",
    "Change",
    "ClearPermissions",
    "ConsistentHashExchange",
    "DeclareExchange",
    "DeclareQueue",
    "DeleteExchange",
    "DeleteQueue",
    "DeleteUser",
    "DeleteVirtualHost",
    "Exchange",
    "Permissions",
    "PutUser",
    "Routes",
    "SetPermissions",
    "Topology",
    "Unbind",
    "User",
    "VirtualHost",
]
