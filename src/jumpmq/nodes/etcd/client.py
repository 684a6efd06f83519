"""Client of etcd, over the JSON gateway served by every etcd member (etcd 3.4 and later).

By https://etcd.io/docs/v3.5/dev-guide/api_grpc_gateway/ each call of the gRPC API is a POST; keys and values are in
base64, numbers of 64 bits are texts. The client uses one member until a call fails, and then the next member.
"""

import base64
import json
import logging
import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from jumpmq.nodes.etcd.sealing import SEALED, NotOpened, Seal

log = logging.getLogger(__name__)

RESEALED = 50
"""Number of values read together to be sealed with a new secret."""

WATCH_LINE = 32 << 20
"""Maximum octets of a message of a watch, which may contain many events."""

JSON = dict[str, Any]


class EtcdError(Exception):
    """etcd cannot be asked, or refuses; the text gives the reason. A transaction may have been carried out all the
    same.
    """


@dataclass(frozen=True, slots=True)
class Value:
    """Value of a key in etcd.

    Attributes:
        key: key with its folder.
        revision: revision of the last change.
    """

    key: str
    value: bytes
    revision: int


@dataclass(frozen=True, slots=True)
class Event:
    """A key was put, or deleted (``value`` is None).

    Attributes:
        key: key with its folder.
        revision: revision of the change.
    """

    key: str
    value: bytes | None
    revision: int


@dataclass(frozen=True, slots=True)
class Found:
    """Values of a range of keys, in order.

    Attributes:
        revision: etcd's revision at the time of the read.
    """

    values: list[Value]
    revision: int


class Compacted(EtcdError):
    """A watch starts before the oldest revision kept by etcd."""


class NotSealed(EtcdError):
    """A value is sealed unexpectedly, not sealed, or sealed with another secret."""


class NoSpace(EtcdError):
    """etcd has reached its quota, or the disk is full, and rejects changes until an operator frees space."""


class Etcd:
    """The client. All calls raise :class:`EtcdError`.

    Args:
        urls: URLs of the members' client ports, ``http://HOST:2379``.
        tls: verification of members with ``https``; None for the system's CAs.
        user, password: credentials, for an etcd with authentication.
        seal: seals written values, and opens read ones; None for plain values.
    """

    def __init__(
        self,
        urls: Sequence[str],
        tls: ssl.SSLContext | None = None,
        user: str | None = None,
        password: str | None = None,
        seal: Seal | None = None,
    ) -> None:
        self.seal = seal
        self._others: dict[str, bytes] = {}  # values sealed with another secret than the first, by key
        self._urls = [url.rstrip("/") for url in urls]
        self._login = None if user is None else {"name": user, "password": password or ""}
        self._token: str | None = None  # once logged in
        self._asked = 0  # index of the current member
        from jumpmq.nodes.etcd import posting  # slow to import, and only a cluster needs it

        self._posting = posting.Posting(True if tls is None else tls, WATCH_LINE)
        self._failures, self._text = posting.FAILURES, posting.text_of

    @property
    def url(self) -> str:
        """URL of the etcd member currently in use."""
        return self._urls[self._asked % len(self._urls)]

    def next_member(self) -> None:
        """Switch to the next etcd member."""
        self._asked += 1

    async def close(self) -> None:
        """Close connections."""
        await self._posting.close()

    # --- calls ---

    async def get(self, key: str) -> Value | None:
        """Return the value of a key."""
        found = await self.range(key)
        return found.values[0] if found.values else None

    async def range(self, first: str, end: str | None = None, limit: int = 0) -> Found:
        """Return the values of the keys from ``first`` up to, but without, ``end``; at most ``limit``
        values, unless 0.
        """
        answer = await self._call("kv/range", range_of(first, end, limit))
        return self._found(answer, answer)

    async def folder(self, folder: str) -> Found:
        """Return the values of all keys in a folder, whose name ends with a slash."""
        return await self.range(folder, end_of(folder))

    async def transaction(
        self, compare: Sequence[JSON], success: Sequence[JSON], failure: Sequence[JSON] = ()
    ) -> tuple[bool, list[Found]]:
        """Do ``success`` if all comparisons hold, else ``failure``; return True for ``success``, with the results of
        reads made by :func:`get`.
        """
        body = {
            "compare": [self._sealed_comparison(one) for one in compare],
            "success": [self._sealed_put(one) for one in success],
            "failure": [self._sealed_put(one) for one in failure],
        }
        answer = await self._call("kv/txn", body)
        done = bool(answer.get("succeeded", False))
        if not done and self.seal is not None:
            compared = [_decoded(one["key"]).decode() for one in body["compare"] if one["target"] == "VALUE"]
            for key in compared:  # a node may have sealed the same value with a different secret
                await self.get(key)
            if [self._sealed_comparison(one) for one in compare] != body["compare"]:
                return await self.transaction(compare, success, failure)
        read = [one["response_range"] for one in answer.get("responses", ()) if "response_range" in one]
        return done, [self._found(answer, one) for one in read]

    async def reseal(self, folder: str) -> None:
        """Seal all values in a folder with the first secret."""
        first, end, seal = folder, end_of(folder), self.seal
        while seal is not None:
            answer = await self._call("kv/range", range_of(first, end, RESEALED))
            read = answer.get("kvs", ())
            for one in read:
                key, as_it_is = _decoded(one["key"]).decode(), _decoded(one.get("value", ""))
                sealed = seal.seal(key, self._opened(key, as_it_is))
                if sealed != as_it_is and not int(one.get("lease", 0)):
                    same = has(key, as_it_is)
                    await self._call("kv/txn", {"compare": [same], "success": [put(key, sealed)]})
            if len(read) < RESEALED:
                return
            first = _decoded(read[-1]["key"]).decode() + "\0"

    async def grant(self, seconds: int) -> int:
        """Return a new lease: keys put with it are deleted unless it is kept alive within the given number of
        seconds.
        """
        return int((await self._call("lease/grant", {"TTL": str(seconds)}))["ID"])

    async def keep_alive(self, lease: int) -> bool:
        """Keep a lease alive; return True if the lease still existed."""
        answer = await self._call("lease/keepalive", {"ID": str(lease)})
        return int(answer.get("result", {}).get("TTL", 0)) > 0

    async def revoke(self, lease: int) -> None:
        """End a lease."""
        await self._call("lease/revoke", {"ID": str(lease)})

    async def watch(self, folder: str, revision: int) -> AsyncIterator[list[Event]]:
        """Yield the events in a folder from a revision on, until the connection breaks.

        Raises:
            Compacted: etcd has deleted the history after that revision.
        """
        request = {
            "create_request": range_of(folder, end_of(folder)) | {"start_revision": str(revision)},
        }
        try:
            async with self._post("watch", request, ends=False) as answer:
                async for line in answer.content:
                    for event in self._watched(json.loads(line)):
                        yield event
        except self._failures as error:
            raise EtcdError(f"etcd at {self.url}: {self._text(error)}") from None

    def _watched(self, said: JSON) -> list[list[Event]]:
        if "error" in said:
            raise EtcdError(f"etcd at {self.url}: {said['error'].get('message', said['error'])}")
        result = said["result"]
        if result.get("canceled"):
            if int(result.get("compact_revision", 0)):
                raise Compacted(f"etcd at {self.url} has compacted what was to be watched")
            raise EtcdError(f"etcd at {self.url}: {result.get('cancel_reason') or 'the watch was cancelled'}")
        events = [self._event(event) for event in result.get("events", ())]
        return [events] if events or result.get("created") else []

    # --- seals ---

    def _opened(self, key: str, value: bytes) -> bytes:
        """Return the plain form of a value stored in etcd.

        Raises:
            NotSealed: the value was put without a secret of this cluster, or sealed although this node has no secret.
        """
        if self.seal is None:
            if value.startswith(SEALED):
                raise NotSealed(f"etcd at {self.url}: '{key}' is sealed: this node needs --cluster-secret-file")
            return value
        try:
            opened = self.seal.open(key, value)
        except NotOpened as error:
            raise NotSealed(f"etcd at {self.url}: {error}") from None
        if self.seal.seal(key, opened) == value:
            self._others.pop(key, None)
        else:
            self._others[key] = value
        return opened

    def _sealed_put(self, operation: JSON) -> JSON:
        if self.seal is None or "request_put" not in operation:
            return operation
        put = operation["request_put"]
        sealed = self.seal.seal(_decoded(put["key"]).decode(), _decoded(put["value"]))
        return {"request_put": put | {"value": _encoded(sealed)}}

    def _sealed_comparison(self, comparison: JSON) -> JSON:
        if self.seal is None or comparison["target"] != "VALUE":
            return comparison
        key, value = _decoded(comparison["key"]).decode(), _decoded(comparison["value"])
        other = self._others.get(key)
        same = other is not None and self.seal.open(key, other) == value
        return comparison | {"value": _encoded(other if same and other is not None else self.seal.seal(key, value))}

    def _found(self, answer: JSON, read: JSON) -> Found:
        """Return the values in a range of a call's answer."""
        values = []
        for one in read.get("kvs", ()):
            key = _decoded(one["key"]).decode()
            values.append(Value(key, self._opened(key, _decoded(one.get("value", ""))), int(one["mod_revision"])))
        return Found(values, int(answer["header"]["revision"]))

    def _event(self, event: JSON) -> Event:
        kv = event["kv"]
        key = _decoded(kv["key"]).decode()
        value = None if event.get("type") == "DELETE" else self._opened(key, _decoded(kv.get("value", "")))
        return Event(key, value, int(kv["mod_revision"]))

    def _post(self, call: str, body: JSON, *, ends: bool = True) -> Any:
        headers = {} if self._token is None else {"Authorization": self._token}
        return self._posting.post(f"{self.url}/v3/{call}", body, headers, ends=ends)

    async def _call(self, call: str, body: JSON) -> JSON:
        if self._login is not None and self._token is None:
            self._token = (await self._ask("auth/authenticate", self._login))["token"]
        return await self._ask(call, body)

    async def _ask(self, call: str, body: JSON) -> JSON:
        """Send a call to a single member; after a failure, the next call goes to the next member."""
        try:
            async with self._post(call, body) as answer:
                said: JSON = json.loads(await answer.text())
                if answer.status == 200:
                    return said
                reason = str(said.get("message") or said.get("error") or answer.status)
        except self._failures as error:
            reason = self._text(error)
        failed = self.url
        if "invalid auth token" in reason:
            self._token = None
        else:
            self.next_member()
        kind = NoSpace if "database space exceeded" in reason else EtcdError
        raise kind(f"etcd at {failed}: {reason}")


# --- what calls are made of ---


def range_of(first: str, end: str | None = None, limit: int = 0) -> JSON:
    """Return a range of keys."""
    return (
        {"key": _encoded(first)}
        | ({"range_end": _encoded(end)} if end else {})
        | ({"limit": str(limit)} if limit else {})
    )


def end_of(folder: str) -> str:
    """Return the first key behind all keys of a folder; the folder's name ends with a slash."""
    return folder[:-1] + chr(ord(folder[-1]) + 1)


def get(first: str, end: str | None = None, limit: int = 0) -> JSON:
    """Read operation of a transaction."""
    return {"request_range": range_of(first, end, limit)}


def put(key: str, value: bytes | str, lease: int = 0) -> JSON:
    """Put operation of a transaction."""
    return {"request_put": {"key": _encoded(key), "value": _encoded(value)} | ({"lease": str(lease)} if lease else {})}


def delete(first: str, end: str | None = None) -> JSON:
    """Delete operation of a transaction."""
    return {"request_delete_range": range_of(first, end)}


def absent(key: str, end: str | None = None) -> JSON:
    """Comparison: a key is absent or, with an ``end``, all keys from the first up to, but without,
    ``end`` are absent.
    """
    keys = {"key": _encoded(key)} | ({"range_end": _encoded(end)} if end else {})
    return keys | {"target": "CREATE", "result": "EQUAL", "create_revision": "0"}


def never(key: str) -> JSON:
    """A comparison that is false for every key."""
    return {"key": _encoded(key), "target": "VERSION", "result": "LESS", "version": "0"}


def present(key: str) -> JSON:
    """Comparison: a key exists."""
    return {"key": _encoded(key), "target": "CREATE", "result": "GREATER", "create_revision": "0"}


def has(key: str, value: bytes | str) -> JSON:
    """Comparison: a key has a value."""
    return {"key": _encoded(key), "target": "VALUE", "result": "EQUAL", "value": _encoded(value)}


def _encoded(text: bytes | str) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def _decoded(text: str) -> bytes:
    return base64.b64decode(text)
