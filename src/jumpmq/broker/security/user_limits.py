"""Limits on the connections, channels and consumers of users and virtual hosts (RabbitMQ, "Per-User Limits"), and on
the publish rate of users. A user's limits also hold for bearers of tokens with the user's name, counted separately.

Resources are counted only if there is a limit, by a pass over all connections: so no counters need updates. Homes send
their counts to each other.
"""

from collections.abc import Callable, Mapping, Set
from typing import Protocol

from jumpmq.amqp.errors import NotAllowed
from jumpmq.amqp.protocol import ConnectionState, ServerProtocol
from jumpmq.broker.security.accounts import Principal
from jumpmq.broker.security.rate import PublishRate
from jumpmq.topology import Change, ChangePrincipal, ClearUserLimit, DeleteUser, SetUserLimit, Topology, VirtualHost
from jumpmq.topology.limits import LimitValues, reached

Usage = dict[str, list[int]]
"""Open resources at a home, of limited users and virtual hosts: of a user (``user NAME``, or ``token NAME``)
connections, channels and consumers, and the number of published messages; of a virtual host (``vhost NAME``)
connections."""

CONNECTIONS, CHANNELS, CONSUMERS, PUBLISHED = range(4)
"""Indexes in the counts of a user."""


class LimitedChannel(Protocol):
    """A channel, as far as limits apply."""

    @property
    def consumers(self) -> Mapping[str, object]:
        """Consumers by tag."""


class LimitedClient(Protocol):
    """A connection, as far as limits apply."""

    user: Principal
    opened: bool
    vhost: VirtualHost
    rate: PublishRate
    protocol: ServerProtocol

    @property
    def channels(self) -> Mapping[int, LimitedChannel]:
        """Channels by number."""


class UserLimits:
    """Counts open resources before another one is opened.

    Args:
        connections: open connections.
    """

    def __init__(self, topology: Topology, connections: Set[LimitedClient]) -> None:
        self._topology = topology
        self._connections = connections
        self._rates: dict[Principal, PublishRate] = {}
        self._others: Mapping[int, Usage] = {}  # usage at other homes, by home
        self._on_use: Callable[[], None] = lambda: None  # called when a limited resource is opened

    def share(self, others: Mapping[int, Usage], on_use: Callable[[], None]) -> None:
        """Count the usage at other homes, too, from now on.

        Args:
            others: current usage at other homes, by home.
            on_use: called when a limited resource is opened here.
        """
        self._others, self._on_use = others, on_use

    def require_connection(self, user: Principal, vhost: VirtualHost) -> None:
        """Refuse unless the user may have a further connection, to the given virtual host.

        Raises:
            NotAllowed: there are as many as there may be.
        """
        limits = self._limits(user)
        if not limits and not vhost.limits:
            return
        running = self._running()
        count = sum(one.vhost is vhost for one in running) + self._at_others(_of_host(vhost.name), CONNECTIONS)
        if (limit := reached(vhost.limits, "max-connections", count)) is not None:
            where = f"access to vhost '{vhost.name}' refused for user '{user}'"
            raise NotAllowed(f"{where}: connection limit ({limit}) is reached")
        count = sum(one.user == user for one in running) + self._at_others(_of_user(user), CONNECTIONS)
        if (limit := reached(limits, "max-connections", count)) is not None:
            raise NotAllowed(f"connection refused for user '{user}': user connection limit ({limit}) is reached")
        self._on_use()

    def require_channel(self, user: Principal) -> None:
        """Refuse unless the user may have a further channel.

        Raises:
            NotAllowed: there are as many as there may be.
        """
        limits = self._limits(user)
        if not limits:
            return
        count = sum(len(one.channels) for one in self._connections if one.user == user)
        count += self._at_others(_of_user(user), CHANNELS)
        if (limit := reached(limits, "max-channels", count)) is not None:
            raise NotAllowed(
                f"number of channels opened for user '{user}' has reached the maximum allowed user limit of ({limit})"
            )
        self._on_use()

    def require_consumer(self, user: Principal) -> None:
        """Refuse unless the user may have a further consumer.

        Raises:
            NotAllowed: there are as many as there may be.
        """
        limits = self._limits(user)
        if "max-consumers" not in limits:
            return
        channels = [channel for one in self._connections if one.user == user for channel in one.channels.values()]
        count = sum(len(channel.consumers) for channel in channels) + self._at_others(_of_user(user), CONSUMERS)
        if (limit := reached(limits, "max-consumers", count)) is not None:
            raise NotAllowed(f"number of consumers of user '{user}' has reached the user's limit ({limit})")
        self._on_use()

    # --- usage at several homes ---

    def usage(self) -> Usage:
        """Return the resources opened at this home by limited users and virtual hosts."""
        users = {user.name for user in self._topology.users.values() if user.limits}
        hosts = {host.name for host in self._topology.vhosts.values() if host.limits}
        found: Usage = {}
        if not users and not hosts:
            return found
        for one in self._running():
            if one.vhost.name in hosts:
                found.setdefault(_of_host(one.vhost.name), [0])[CONNECTIONS] += 1
            if one.user.name in users:
                counts = found.setdefault(_of_user(one.user), [0, 0, 0, 0])
                counts[CONNECTIONS] += 1
                counts[CHANNELS] += len(one.channels)
                counts[CONSUMERS] += sum(len(channel.consumers) for channel in one.channels.values())
        for user, rate in self._rates.items():
            if rate.counted:
                found.setdefault(_of_user(user), [0, 0, 0, 0])[PUBLISHED] = rate.counted
        return found

    def _running(self) -> list[LimitedClient]:
        return [one for one in self._connections if one.opened and one.protocol.state is ConnectionState.RUNNING]

    def _at_others(self, whose: str, what: int) -> int:
        return sum(usage[whose][what] for usage in self._others.values() if whose in usage)

    # --- publish rates ---

    def rate(self, user: Principal) -> PublishRate | None:
        """Return the shared count of the user's published messages; None without a limit."""
        limit = self._limits(user).get("max-publish-rate", -1)
        if limit <= 0:
            self._rates.pop(user, None)
            return None
        rate = self._rates.setdefault(user, PublishRate(limit))
        rate.set_limit(limit)
        return rate

    def published_at_others(self, before: Usage, after: Usage) -> None:
        """Process the usage of another home: messages published there since ``before`` count here, too."""
        for user, rate in self._rates.items():
            if (counts := after.get(whose := _of_user(user))) is not None:
                had = before[whose][PUBLISHED] if whose in before else 0
                rate.count_at_others(max(0, counts[PUBLISHED] - had))

    def follow(self, change: Change, principal: ChangePrincipal) -> None:
        """Handle a changed limit: set the new publish rate of the user's connections."""
        match change:
            case SetUserLimit(name) | ClearUserLimit(name) | DeleteUser(name):
                for connection in [one for one in self._connections if one.user.name == name]:
                    connection.rate.shared = self.rate(connection.user)

    def _limits(self, user: Principal) -> LimitValues:
        found = self._topology.users.get(user.name)
        return found.limits if found is not None else {}


def _of_user(user: Principal) -> str:
    return f"{'token' if user.granted is not None else 'user'} {user.name}"


def _of_host(name: str) -> str:
    return f"vhost {name}"
