"""Changes of users, permissions, and limits of users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jumpmq.topology import limits
from jumpmq.topology.changes.base import Change
from jumpmq.topology.users import Permissions, TopicPermissions, User

if TYPE_CHECKING:
    from jumpmq.topology.state import State


@dataclass(frozen=True, slots=True)
class PutUser(Change):
    """Add a user, or replace password and tags of an existing one.

    Attributes:
        password_hash: hash made and verified by the broker; opaque here.
    """

    UNAUDITED: ClassVar[frozenset[str]] = frozenset({"password_hash"})

    name: str
    password_hash: str
    tags: tuple[str, ...] = ()

    def effect(self, state: State) -> None:
        user = state.users.setdefault(self.name, User(self.name, ""))
        user.password_hash, user.tags = self.password_hash, self.tags
        state.records.put_user(user)

    def inverse(self, state: State) -> list[Change]:
        user = state.users.get(self.name)
        if user is None:
            return [DeleteUser(self.name)]
        return [PutUser(user.name, user.password_hash, user.tags)]


@dataclass(frozen=True, slots=True)
class DeleteUser(Change):
    """Delete a user with all permissions."""

    name: str

    def check(self, state: State) -> None:
        state.user(self.name)

    def effect(self, state: State) -> None:
        user = state.users.pop(self.name)
        for vhost in user.permissions:
            state.records.delete_permissions(self.name, vhost)
        for vhost, exchange in user.topic_permissions:
            state.records.delete_topic_permissions(self.name, vhost, exchange)
        state.records.put_user_limits(self.name, {})
        state.records.delete_user(self.name)


@dataclass(frozen=True, slots=True)
class SetPermissions(Change):
    """Set a user's permissions in a virtual host: regular expressions searched in the names of resources."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str

    @property
    def _granted(self) -> Permissions:
        return Permissions(self.configure, self.write, self.read)

    def check(self, state: State) -> None:
        state.user(self.user)
        state.vhost(self.vhost)
        self._granted.check()

    def effect(self, state: State) -> None:
        user = state.user(self.user)
        user.permissions[self.vhost] = self._granted
        state.records.put_permissions(user, self.vhost)

    def inverse(self, state: State) -> list[Change]:
        granted = state.user(self.user).permissions.get(self.vhost)
        if granted is None:
            return [ClearPermissions(self.user, self.vhost)]
        return [SetPermissions(self.user, self.vhost, granted.configure, granted.write, granted.read)]


@dataclass(frozen=True, slots=True)
class ClearPermissions(Change):
    """Remove a user's permissions in a virtual host."""

    user: str
    vhost: str

    def check(self, state: State) -> None:
        state.user(self.user)

    def effect(self, state: State) -> None:
        if state.user(self.user).permissions.pop(self.vhost, None) is not None:
            state.records.delete_permissions(self.user, self.vhost)


@dataclass(frozen=True, slots=True)
class SetTopicPermissions(Change):
    """Set a user's routing keys for publishing to a topic exchange, and for binding to it.

    Attributes:
        exchange: need not exist yet.
        write, read: regular expressions, see :class:`jumpmq.topology.users.TopicPermissions`.
    """

    user: str
    vhost: str
    exchange: str
    write: str
    read: str

    @property
    def _granted(self) -> TopicPermissions:
        return TopicPermissions(self.write, self.read)

    def check(self, state: State) -> None:
        state.user(self.user)
        state.vhost(self.vhost)
        self._granted.check()

    def effect(self, state: State) -> None:
        state.user(self.user).topic_permissions[self.vhost, self.exchange] = self._granted
        state.records.put_topic_permissions(self.user, self.vhost, self.exchange, self._granted)

    def inverse(self, state: State) -> list[Change]:
        granted = state.user(self.user).topic_permissions.get((self.vhost, self.exchange))
        if granted is None:
            return [ClearTopicPermissions(self.user, self.vhost, self.exchange)]
        return [SetTopicPermissions(self.user, self.vhost, self.exchange, granted.write, granted.read)]


@dataclass(frozen=True, slots=True)
class ClearTopicPermissions(Change):
    """Remove a user's topic permissions in a virtual host: for one exchange, or for all without a name."""

    user: str
    vhost: str
    exchange: str | None = None

    def check(self, state: State) -> None:
        state.user(self.user)

    def effect(self, state: State) -> None:
        granted = state.user(self.user).topic_permissions
        for vhost, exchange in list(granted):
            if vhost == self.vhost and self.exchange in (None, exchange):
                del granted[vhost, exchange]
                state.records.delete_topic_permissions(self.user, vhost, exchange)


@dataclass(frozen=True, slots=True)
class SetUserLimit(Change):
    """Set one of a user's limits, :data:`jumpmq.topology.limits.USER_LIMITS`; negative is unlimited."""

    user: str
    limit: str
    value: int

    def check(self, state: State) -> None:
        state.user(self.user)
        limits.check(self.limit, self.value, limits.USER_LIMITS, "user-limits")

    def effect(self, state: State) -> None:
        user = state.user(self.user)
        user.limits[self.limit] = self.value
        state.records.put_user_limits(user.name, user.limits)

    def inverse(self, state: State) -> list[Change]:
        value = state.user(self.user).limits.get(self.limit)
        if value is None:
            return [ClearUserLimit(self.user, self.limit)]
        return [SetUserLimit(self.user, self.limit, value)]


@dataclass(frozen=True, slots=True)
class ClearUserLimit(Change):
    """Clear a limit of a user."""

    user: str
    limit: str

    def check(self, state: State) -> None:
        state.user(self.user)

    def effect(self, state: State) -> None:
        user = state.user(self.user)
        if user.limits.pop(self.limit, None) is not None:
            state.records.put_user_limits(user.name, user.limits)
