"""Server's side of remote channels: a channel per client channel of another home. The client's home has already
checked the permissions.
"""

import asyncio
import json
import logging
from collections import deque
from typing import Any, cast

from jumpmq.amqp import methods as m
from jumpmq.amqp.errors import AMQPError, InternalError
from jumpmq.amqp.frames import encode_content, encode_frame
from jumpmq.amqp.messages import Message
from jumpmq.broker.channel import settling
from jumpmq.broker.channel.channel import Channel, ChannelServices
from jumpmq.broker.channel.waiting import Waiting
from jumpmq.broker.memory.charges import Charges
from jumpmq.broker.security.accounts import Principal
from jumpmq.broker.security.authorization import Authorization
from jumpmq.broker.security.tokens import from_values
from jumpmq.broker.security.user_limits import UserLimits
from jumpmq.broker.telemetry.churn import Churn
from jumpmq.nodes.transport.link import Link
from jumpmq.nodes.transport.links import Links
from jumpmq.nodes.transport.records import (
    ASKED,
    CLOSE,
    CODE,
    CREDIT,
    FRAME_REFUSAL,
    FRAMES,
    METHOD,
    NUMBER,
    OPEN,
    PREFETCH,
    SETTLE,
    SETTLED,
    TWO,
)
from jumpmq.nodes.transport.windows import SendWindow
from jumpmq.queues.consumer import Consumer
from jumpmq.queues.memory import MemoryAccount
from jumpmq.store.completion import CompleteReceipt
from jumpmq.topology import Change, ChangePrincipal
from jumpmq.topology.bindings import DestinationKind
from jumpmq.topology.tally import Tally
from jumpmq.topology.users import Operation

log = logging.getLogger(__name__)

SETTLEMENTS = [settling.acknowledge, settling.reject, settling.requeue, settling.fail]
"""Functions for the outcomes of deliveries, in the order of :data:`~jumpmq.nodes.channels.remote_channel.OUTCOMES`."""

UNNUMBERED = 1 << 62
"""Stands for the commit of the current turn until the commit has a number."""


class _PermitAll:
    """Permits everything: the client's home has checked the permissions."""

    def require_change(self, user: Principal, change: Change) -> None:
        pass

    def require_consumer(self, user: Principal) -> None:
        pass


class _Served:
    """A remote channel's client. Implements :class:`~jumpmq.broker.channel.client.ChannelClient`."""

    frame_max = 1 << 30
    wants_cancel_notice = True

    def __init__(
        self, link: Link, services: ChannelServices, memory: MemoryAccount, opened: Any, window: SendWindow
    ) -> None:
        self.name: str = opened["name"]
        self.user = _principal(opened)
        self.peer_host, self.peer_port = opened["peer"]
        self.identity: str = opened["identity"]
        self.node: str = opened["node"]
        self.provided_name: str | None = opened["provided_name"]
        self.vhost = services.topology.vhosts[opened["vhost"]]
        self.charges = Charges(memory)
        self.change_principal = ChangePrincipal(self.user.name, self.name, self.peer_host)
        self.channel = Channel(self, opened["channel"], services)
        self.channel.consumer_max = None
        self.home = link.peer  # of the client
        self._link = link  # to the client's home
        self._number = NUMBER.pack(opened["number"])
        self._turns = services.turns  # those of the broker
        self._out: list[bytes | memoryview] = []  # frames to send
        self._window = window  # shared by all channels of the client
        window.enter(self)
        self._deferred_until = 0  # commit awaited by the answers
        self._waiting: Waiting | None = None  # wait of the current method
        self._rest: deque[tuple[int, bytes]] = deque()  # records received during the wait

    # --- requests of the client's home ---

    def take(self, kind: int, payload: bytes) -> None:
        """Execute a record; a record received during the wait of a method is executed after the wait."""
        if self._waiting is not None:
            self._rest.append((kind, payload))
        elif kind == METHOD:
            self._ask(payload)
        else:
            self._settle(payload)

    def _ask(self, payload: bytes) -> None:
        channel = self.channel
        _, channel.consumer_prefetch, channel.prefetch = ASKED.unpack_from(payload)
        method = m.decode(payload[ASKED.size :])
        self._act(lambda: channel.receive(method))

    def _act(self, act: Any) -> None:
        try:
            waiting = act()
        except AMQPError as error:
            self._refuse(error)
        except Exception:
            log.exception("remote channel of %s: unexpected error", self.name)
            self._refuse(InternalError("unexpected error; see the broker's log"))
        else:
            if waiting is not None:
                self._waiting = waiting
                waiting.on_end(lambda: asyncio.get_running_loop().call_soon(self._go_on, waiting))

    def _go_on(self, waiting: Waiting) -> None:
        if self._waiting is not waiting or self.channel.closed:
            return
        self._waiting = None
        with self._turns.turn():
            self._act(waiting.go_on)
            while self._rest and self._waiting is None:
                self.take(*self._rest.popleft())

    def _refuse(self, error: AMQPError) -> None:
        refusal = CODE.pack(error.code) + error.text.encode("utf-8", "surrogateescape")
        self._gather([encode_frame(FRAME_REFUSAL, 0, refusal)])

    def _settle(self, payload: bytes) -> None:
        _, outcome = SETTLED.unpack_from(payload)
        channel = self.channel
        SETTLEMENTS[outcome](channel, channel.unacknowledged.claim_packed(payload, SETTLED.size))

    @property
    def congested(self) -> bool:
        """True if the client reads too slowly for more deliveries."""
        return self._window.congested

    def serve(self) -> None:
        """Deliver messages as far as the window allows."""
        self.channel.serve()

    def set_prefetch(self, prefetch: int) -> None:
        """Set the prefetch of the whole channel."""
        self.channel.prefetch = prefetch
        self.channel.serve()

    def credit(self, octets: int) -> None:
        """Note the octets of frames that the client has received."""
        self._window.credit(self, octets)

    def close(self) -> bool:
        """Close the channel, after the client's channel is closed or the client's home is down; return True for the
        client's last channel.
        """
        self.channel.tally = Tally()  # the client's home keeps the counts
        self.channel.close()
        self.charges.release()
        self._out.clear()
        return self._window.leave(self)

    # --- what the channel asks ---

    def leave_queues(self) -> None:
        """Do nothing: the connection's queues are at the client's home."""

    def require_permission(self, operation: Operation, kind: DestinationKind, name: str) -> None:
        """Permit: the client's home has checked the permissions."""

    def send(self, channel: int, method: m.Method) -> None:
        """Send a method at the end of the turn."""
        self._gather([method.frame(channel)])

    def send_content(self, channel: int, method: m.Method, message: Message) -> None:
        """Send a method with content at the end of the turn."""
        content = encode_content(message, channel, self.frame_max, count_first=True)
        self._gather([method.frame(channel), *content])

    def send_deliveries(self, buffers: list[bytes | memoryview]) -> None:
        """Send deliveries at the end of the turn."""
        self._gather(buffers)

    def relay_deliveries(self, frames: memoryview) -> None:
        """Relay deliveries from another home."""
        self._gather([bytes(frames)])

    def _gather(self, buffers: list[bytes | memoryview]) -> None:
        self._out += buffers
        self._window.send(self, sum(map(len, buffers)))
        self._turns.write_soon(self)

    def defer_answers(self) -> None:
        """Hold back answers until the changes of this turn are on disk."""
        if self._turns.defer(self):
            self._deferred_until = UNNUMBERED

    # --- what turns ask ---

    def write(self) -> None:
        """Write pending output."""
        if self._out and not self._deferred_until:
            self._link.send(FRAMES, self._number, *self._out)
            self._window.send(self, len(self._number))
            self._out.clear()

    def defer_until(self, commit: int) -> None:
        """Hold back output until the given commit is complete."""
        self._deferred_until = commit

    def send_deferred(self, completed: CompleteReceipt) -> bool:
        """Note a complete commit; return True if no output is held back any more."""
        if completed < self._deferred_until:
            return False
        self._deferred_until = 0
        return True

    def wait_for_disk(self, behind: bool) -> None:
        """Do nothing: a link is always read."""

    def wait_for_home(self, behind: bool) -> None:
        """Do nothing: a link is always read."""


def client_home(consumer: Consumer) -> int | None:
    """Return the home of a consumer's client, if remote."""
    channel = getattr(consumer, "channel", None)
    return channel.connection.home if channel is not None and isinstance(channel.connection, _Served) else None


def _principal(opened: Any) -> Principal:
    """Return the client's user, with the permissions of a token."""
    return from_values(opened["user"], opened["scopes"], opened["until"])


class ServedChannels:
    """Channels served by the process for clients of other homes."""

    def __init__(self, links: Links) -> None:
        self._services: ChannelServices | None = None  # None before the start
        self._memory: MemoryAccount  # for unsettled deliveries
        self._served: dict[tuple[int, int], _Served] = {}  # by home and number
        self._windows: dict[tuple[int, str], SendWindow] = {}  # by home and the client's identity
        self._links = links
        self._held: list[tuple[Link, bytes]] = []  # methods waiting for the lease of this home's replica
        links.handlers[OPEN] = self._open
        links.handlers[METHOD] = self._take_method
        links.handlers[SETTLE] = lambda link, payload: self._take(link, SETTLE, payload)
        links.handlers[PREFETCH] = self._set_prefetch
        links.handlers[CREDIT] = self._credit
        links.handlers[CLOSE] = self._close
        links.on_down.append(self._down)

    def serve(self, services: ChannelServices, memory: MemoryAccount) -> None:
        """Start serving, as the queues are ready."""
        permit_all = _PermitAll()
        self._services = ChannelServices(
            config=services.config,
            topology=services.topology,
            turns=services.turns,
            upkeep=services.upkeep,
            authorization=cast("Authorization", permit_all),
            user_limits=cast("UserLimits", permit_all),
            churn=Churn(),
            groups=services.groups,
            spans=None,
        )
        self._memory = memory

    def channels(self) -> list[Channel]:
        """Return the channels served for other homes."""
        return [served.channel for served in self._served.values()]

    def _open(self, link: Link, payload: memoryview) -> None:
        opened = json.loads(bytes(payload))
        if self._services is not None and opened["vhost"] in self._services.topology.vhosts:
            window = self._windows.setdefault((link.peer, opened["identity"]), SendWindow())
            served = _Served(link, self._services, self._memory, opened, window)
            self._served[link.peer, opened["number"]] = served

    def _take_method(self, link: Link, payload: memoryview) -> None:
        """Execute a method. The method waits while another node may lead this home: ``basic.get`` might find an
        outdated, empty queue.
        """
        gate = None if self._services is None else self._services.topology.delivery_gate
        if gate is None or not (self._held or gate.is_closed):
            self._take(link, METHOD, payload)
            return
        if not self._held:
            gate.when_open(self._take_held)
        self._held.append((link, bytes(payload)))

    def _take_held(self) -> None:
        held, self._held = self._held, []
        for link, payload in held:
            if link.up:
                self._take(link, METHOD, memoryview(payload))

    def _take(self, link: Link, kind: int, payload: memoryview) -> None:
        served = self._served.get((link.peer, NUMBER.unpack_from(payload)[0]))
        if served is not None:
            served.take(kind, bytes(payload))
        elif kind == METHOD:
            text = CODE.pack(InternalError.code) + b"the home of the queue is not ready"
            link.send(FRAMES, bytes(payload[: NUMBER.size]), encode_frame(FRAME_REFUSAL, 0, text))

    def _set_prefetch(self, link: Link, payload: memoryview) -> None:
        number, prefetch = TWO.unpack_from(payload)
        if (served := self._served.get((link.peer, number))) is not None:
            served.set_prefetch(prefetch)

    def _credit(self, link: Link, payload: memoryview) -> None:
        number, octets = TWO.unpack_from(payload)
        if (served := self._served.get((link.peer, number))) is not None:
            served.credit(octets)

    def _close(self, link: Link, payload: memoryview) -> None:
        served = self._served.pop((link.peer, NUMBER.unpack_from(payload)[0]), None)
        if served is not None and served.close():
            del self._windows[link.peer, served.identity]

    def _down(self, link: Link) -> None:
        for place in [place for place in self._windows if place[0] == link.peer]:
            self._windows.pop(place).abandon()
        for key in [key for key in self._served if key[0] == link.peer]:
            self._served.pop(key).close()
