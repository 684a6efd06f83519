"""A client of the management API, for the command line and Spark. Needs the standard library only."""

from jumpmq.management.client import DEFAULT_URL, TIMEOUT, ManagementClient
from jumpmq.management.errors import InvalidRequest, ManagementError, NoAnswer, NotManagement, Refusal
from jumpmq.management.tls import ClientTLS

__all__ = [
    "DEFAULT_URL",
    "TIMEOUT",
    "ClientTLS",
    "InvalidRequest",
    "ManagementClient",
    "ManagementError",
    "NoAnswer",
    "NotManagement",
    "Refusal",
]
