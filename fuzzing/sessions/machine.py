"""The state machine that generates sessions (hypothesis, stateful testing): a rule per method, on both brokers at once.

Most drawn values are valid in the state of the session, so that messages move; the rest is invalid on purpose. A rule
that ends much draws `now`, which is seldom true.
"""

import copy
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from fuzzing.sessions import arguments, http_requests
from fuzzing.sessions.operator import PolicyStep, RequestStep
from fuzzing.sessions.pair import Pair
from fuzzing.sessions.side import Place, Step
from jumpmq.amqp import methods as m
from jumpmq.amqp.fields import Field
from jumpmq.amqp.properties import Properties

PLACES = st.sampled_from([(1, 1)] * 8 + [(1, 2)] * 2 + [(2, 1)] * 3 + [(3, 1)] * 2)
"""Connection and channel; the third connection's user has limited permissions."""
EVEN = st.booleans()
SELDOM = st.sampled_from([False] * 7 + [True])
RARELY = st.sampled_from([False] * 25 + [True])
TAGS = st.sampled_from([0, 0, 1, 2, -1, -2] * 4 + [None])
"""Index of a delivery on the channel; None is an unknown tag."""
NO_TAGS = st.sampled_from([0, 1, 2, 99, (1 << 64) - 1])


class Sessions(RuleBasedStateMachine):
    """A session on the two brokers of ``pair``."""

    pair: ClassVar[Pair]

    def __init__(self) -> None:
        super().__init__()
        self.pair.begin()

    def teardown(self) -> None:
        self.pair.end()

    def _step(
        self, at: Place, method: m.Method | None, properties: Properties | None = None, body: bytes = b""
    ) -> Step:
        prefix = self.pair.prefix
        if method is not None:
            for name, _ in method.layout:
                setattr(method, name, arguments.prefixed(getattr(method, name), prefix))
        octets = arguments.prefixed(properties, prefix).encode() if properties is not None else b"\0\0"
        return Step(at, method, octets, body)

    def _take(
        self, at: Place, method: m.Method | None, properties: Properties | None = None, body: bytes = b"", *,
        ready: bool = True,
    ) -> None:  # fmt: skip
        if not self.pair.over:
            self.pair.ready(at, channel=ready)
            self.pair.take(self._step(at, method, properties, body))

    def _key(self, queue: str) -> bytes:
        return queue.replace("§", self.pair.prefix).encode()

    @initialize(
        queues=st.lists(st.tuples(arguments.GOOD_QUEUE_ARGUMENTS, EVEN, SELDOM), min_size=1, max_size=2),
        exchanges=st.lists(st.tuples(arguments.BUILT_IN_TYPES, arguments.KEYS), min_size=1, max_size=2),
    )
    def something_to_begin_with(self, queues: Any, exchanges: Any) -> None:
        for number, (table, durable, exclusive) in enumerate(queues, 1):
            declare = m.QueueDeclare(queue=f"§q{number}", durable=durable, exclusive=exclusive, arguments=table)
            self._take((1, 1), declare)
        for number, (kind, key) in enumerate(exchanges, 1):
            self._take((1, 1), m.ExchangeDeclare(exchange=f"§e{number}", type=kind))
            self._take((1, 1), m.QueueBind(queue=f"§q{len(queues)}", exchange=f"§e{number}", routing_key=key))

    # --- exchanges and queues ---

    @rule(
        at=PLACES, name=arguments.EXCHANGES, kind=arguments.EXCHANGE_TYPES, passive=EVEN, durable=SELDOM,
        auto_delete=SELDOM, internal=SELDOM, no_wait=SELDOM, table=arguments.EXCHANGE_ARGUMENTS,
    )  # fmt: skip
    def exchange_declare(
        self, at: Place, name: str, kind: str, passive: bool, durable: bool, auto_delete: bool, internal: bool,
        no_wait: bool, table: list[Field],
    ) -> None:  # fmt: skip
        self._take(at, m.ExchangeDeclare(0, name, kind, passive, durable, auto_delete, internal, no_wait, table))

    @rule(at=PLACES, name=arguments.EXCHANGES, if_unused=EVEN, no_wait=SELDOM, now=SELDOM)
    def exchange_delete(self, at: Place, name: str, if_unused: bool, no_wait: bool, now: bool) -> None:
        if now:
            self._take(at, m.ExchangeDelete(0, name, if_unused, no_wait))

    @rule(
        at=PLACES, destination=arguments.EXCHANGES, source=arguments.EXCHANGES, key=arguments.KEYS, no_wait=SELDOM,
        table=arguments.BINDING_ARGUMENTS, unbind=SELDOM,
    )  # fmt: skip
    def exchange_bind(
        self, at: Place, destination: str, source: str, key: bytes, no_wait: bool, table: list[Field], unbind: bool
    ) -> None:
        kind = m.ExchangeUnbind if unbind else m.ExchangeBind
        self._take(at, kind(0, destination, source, key, no_wait, table))

    @rule(
        at=PLACES, name=arguments.QUEUES, passive=EVEN, durable=EVEN, exclusive=SELDOM, auto_delete=SELDOM,
        no_wait=SELDOM, table=arguments.QUEUE_ARGUMENTS,
    )  # fmt: skip
    def queue_declare(
        self, at: Place, name: str, passive: bool, durable: bool, exclusive: bool, auto_delete: bool, no_wait: bool,
        table: list[Field],
    ) -> None:  # fmt: skip
        self._take(at, m.QueueDeclare(0, name, passive, durable, exclusive, auto_delete, no_wait, table))

    @rule(at=PLACES, name=st.sampled_from(["§q3", "§q4", ""]), auto_delete=EVEN, table=arguments.GOOD_QUEUE_ARGUMENTS)
    def another_queue(self, at: Place, name: str, auto_delete: bool, table: list[Field]) -> None:
        self._take(at, m.QueueDeclare(queue=name, auto_delete=auto_delete, arguments=table))

    @rule(at=PLACES, name=st.sampled_from(["§k1", "§k1", "§k2"]), table=arguments.QUORUM, now=EVEN)
    def quorum_queue(self, at: Place, name: str, table: list[Field], now: bool) -> None:
        if now:
            self._take(at, m.QueueDeclare(queue=name, durable=True, arguments=table))

    @rule(at=PLACES, name=st.sampled_from(["§s1"]), table=arguments.STREAM, now=SELDOM)
    def stream(self, at: Place, name: str, table: list[Field], now: bool) -> None:
        if now:
            self._take(at, m.QueueDeclare(queue=name, durable=True, arguments=table))

    @rule(
        at=PLACES, count=st.sampled_from([1, 2, 10, 0]), offset=arguments.OFFSETS, no_ack=RARELY, whole=RARELY,
        now=SELDOM,
    )  # fmt: skip
    def read_a_stream(self, at: Place, count: int, offset: list[Field], no_ack: bool, whole: bool, now: bool) -> None:
        if now:
            self._take(at, m.BasicQos(0, count, whole))
            self._take(at, m.BasicConsume(queue="§s1", no_ack=no_ack, arguments=offset))

    @rule(
        name=st.sampled_from(["1", "2"]), kind=st.sampled_from(["policies"] * 3 + ["operator-policies"]),
        body=arguments.POLICIES, cleared=SELDOM, now=SELDOM,
    )  # fmt: skip
    def policy(self, name: str, kind: str, body: dict[str, Any], cleared: bool, now: bool) -> None:
        if now:
            prefix = self.pair.prefix
            self.pair.operate(PolicyStep(kind, prefix + name, None if cleared else arguments.prefixed(body, prefix)))

    @rule(asked=http_requests.REQUESTS, now=EVEN)
    def request(self, asked: tuple[str, str, dict[str, Any] | None], now: bool) -> None:
        if now:
            self.pair.operate(RequestStep(*arguments.prefixed(asked, self.pair.prefix)))

    @rule(
        at=PLACES, queue=arguments.QUEUES, exchange=arguments.EXCHANGES, key=arguments.KEYS, no_wait=SELDOM,
        table=arguments.BINDING_ARGUMENTS,
    )  # fmt: skip
    def queue_bind(self, at: Place, queue: str, exchange: str, key: bytes, no_wait: bool, table: list[Field]) -> None:
        self._take(at, m.QueueBind(0, queue, exchange, key, no_wait, table))

    @rule(
        at=PLACES, queue=arguments.QUEUES, exchange=arguments.EXCHANGES, key=arguments.KEYS,
        table=arguments.BINDING_ARGUMENTS, now=SELDOM,
    )  # fmt: skip
    def queue_unbind(self, at: Place, queue: str, exchange: str, key: bytes, table: list[Field], now: bool) -> None:
        if now:
            self._take(at, m.QueueUnbind(0, queue, exchange, key, table))

    @rule(at=PLACES, name=arguments.QUEUES, no_wait=SELDOM, now=SELDOM)
    def queue_purge(self, at: Place, name: str, no_wait: bool, now: bool) -> None:
        if now:
            self._take(at, m.QueuePurge(0, name, no_wait))

    @rule(at=PLACES, name=arguments.QUEUES, if_unused=EVEN, if_empty=EVEN, no_wait=SELDOM, now=SELDOM)
    def queue_delete(self, at: Place, name: str, if_unused: bool, if_empty: bool, no_wait: bool, now: bool) -> None:
        if now:
            self._take(at, m.QueueDelete(0, name, if_unused, if_empty, no_wait))

    # --- publishing ---

    @rule(
        at=PLACES, exchange=arguments.EXCHANGES, key=arguments.KEYS, mandatory=EVEN, immediate=RARELY,
        properties=arguments.PROPERTIES, body=arguments.BODIES,
    )  # fmt: skip
    def publish(
        self, at: Place, exchange: str, key: bytes, mandatory: bool, immediate: bool, properties: Properties,
        body: bytes,
    ) -> None:  # fmt: skip
        self._take(at, m.BasicPublish(0, exchange, key, mandatory, immediate), properties, body)

    @rule(
        at=PLACES, queue=arguments.QUEUES, mandatory=EVEN, properties=arguments.PROPERTIES, body=arguments.BODIES
    )  # fmt: skip
    def publish_to_queue(self, at: Place, queue: str, mandatory: bool, properties: Properties, body: bytes) -> None:
        self._take(at, m.BasicPublish(0, "", self._key(queue), mandatory, False), properties, body)

    @rule(
        at=PLACES, queue=arguments.QUEUES,
        messages=st.lists(st.tuples(arguments.PROPERTIES | st.just(Properties()), EVEN), min_size=2, max_size=5),
    )  # fmt: skip
    def publish_several(self, at: Place, queue: str, messages: list[tuple[Properties, bool]]) -> None:
        """Several publishes at once, without waiting in between."""
        if self.pair.over:
            return
        self.pair.ready(at)
        self.pair.take(
            *(
                self._step(at, m.BasicPublish(0, "", self._key(queue), mandatory, False), properties, b"%d" % number)
                for number, (properties, mandatory) in enumerate(messages)
            )
        )

    @rule(at=PLACES, to=st.sampled_from([b"amq.rabbitmq.reply-to.@1"] * 3 + [b"amq.rabbitmq.reply-to"]), now=SELDOM)
    def answer(self, at: Place, to: bytes, now: bool) -> None:
        """Publish to a direct reply-to name."""
        if now:
            self._take(at, m.BasicPublish(0, "", to, True, False), Properties(correlation_id="1"), b"answer")

    @rule(at=PLACES, queue=arguments.QUEUES, now=SELDOM)
    def publish_for_a_moment(self, at: Place, queue: str, now: bool) -> None:
        if now:
            properties = Properties(expiration="20")
            self._take(at, m.BasicPublish(0, "", self._key(queue), False, False), properties, b"brief")
            self.pair.pause(0.08)

    # --- consuming ---

    @rule(at=PLACES, queue=arguments.QUEUES, no_ack=SELDOM)
    def get(self, at: Place, queue: str, no_ack: bool) -> None:
        self._take(at, m.BasicGet(0, queue, no_ack))

    @rule(
        at=PLACES, queue=arguments.QUEUES, tag=arguments.TAGS, no_local=SELDOM, no_ack=SELDOM, exclusive=SELDOM,
        no_wait=SELDOM, table=arguments.CONSUMER_ARGUMENTS,
    )  # fmt: skip
    def consume(
        self, at: Place, queue: str, tag: str, no_local: bool, no_ack: bool, exclusive: bool, no_wait: bool,
        table: list[Field],
    ) -> None:  # fmt: skip
        self._take(at, m.BasicConsume(0, queue, tag, no_local, no_ack, exclusive, no_wait, table))

    @rule(at=PLACES, queue=st.sampled_from(["§q1", "§q2"]), count=st.sampled_from([0, 1, 2]), whole=SELDOM)
    def consume_with_prefetch(self, at: Place, queue: str, count: int, whole: bool) -> None:
        self._take(at, m.BasicQos(0, count, whole))
        self._take(at, m.BasicConsume(queue=queue))

    @rule(at=PLACES, no_ack=st.sampled_from([True] * 6 + [False]), now=SELDOM)
    def consume_answers(self, at: Place, no_ack: bool, now: bool) -> None:
        if now:
            self._take(at, m.BasicConsume(queue="amq.rabbitmq.reply-to", consumer_tag="answers", no_ack=no_ack))

    @rule(at=PLACES, tag=arguments.TAGS, no_wait=SELDOM)
    def cancel(self, at: Place, tag: str, no_wait: bool) -> None:
        self._take(at, m.BasicCancel(tag, no_wait))

    @rule(at=PLACES, size=st.sampled_from([0] * 15 + [10]), count=st.sampled_from([0, 1, 1, 2, 3, 65535]), whole=SELDOM)
    def qos(self, at: Place, size: int, count: int, whole: bool) -> None:
        self._take(at, m.BasicQos(size, count, whole))

    # --- settling ---

    def _tag(self, at: Place, which: int | None, none: int) -> int | None:
        """A delivery tag of the channel; None without a delivery, unless another value is given."""
        came = self.pair.delivered(at)
        if which is None:
            return none
        return came[which] if -len(came) <= which < len(came) else None

    @rule(at=PLACES, which=TAGS, none=NO_TAGS, multiple=EVEN)
    def ack(self, at: Place, which: int | None, none: int, multiple: bool) -> None:
        if (tag := self._tag(at, which, none)) is not None:
            self._take(at, m.BasicAck(tag, multiple))

    @rule(at=PLACES, which=TAGS, none=NO_TAGS, multiple=EVEN, requeue=EVEN)
    def nack(self, at: Place, which: int | None, none: int, multiple: bool, requeue: bool) -> None:
        if (tag := self._tag(at, which, none)) is not None:
            self._take(at, m.BasicNack(tag, multiple, requeue))

    @rule(at=PLACES, which=TAGS, none=NO_TAGS, requeue=EVEN)
    def reject(self, at: Place, which: int | None, none: int, requeue: bool) -> None:
        if (tag := self._tag(at, which, none)) is not None:
            self._take(at, m.BasicReject(tag, requeue))

    @rule(at=PLACES, requeue=st.sampled_from([True] * 12 + [False]), answered=EVEN)
    def recover(self, at: Place, requeue: bool, answered: bool) -> None:
        self._take(at, m.BasicRecover(requeue) if answered else m.BasicRecoverAsync(requeue))

    # --- modes ---

    @rule(at=PLACES, no_wait=SELDOM, now=SELDOM)
    def confirm_select(self, at: Place, no_wait: bool, now: bool) -> None:
        if now:
            self._take(at, m.ConfirmSelect(no_wait))

    @rule(at=PLACES, now=SELDOM)
    def tx_select(self, at: Place, now: bool) -> None:
        if now:
            self._take(at, m.TxSelect())

    @rule(at=PLACES, commit=st.sampled_from([True, True, False]), now=RARELY)
    def tx_end(self, at: Place, commit: bool, now: bool) -> None:
        if now or self.pair.is_transactional(at):
            self._take(at, m.TxCommit() if commit else m.TxRollback())

    # --- channels and connections ---

    @rule(at=PLACES, active=st.sampled_from([True] * 5 + [False]), now=SELDOM)
    def flow(self, at: Place, active: bool, now: bool) -> None:
        if now:
            self._take(at, m.ChannelFlow(active))

    @rule(at=PLACES, now=SELDOM)
    def close_channel(self, at: Place, now: bool) -> None:
        if now:
            self._take(at, m.ChannelClose(200, "bye", 0, 0))

    @rule(at=PLACES, now=RARELY)
    def open_channel(self, at: Place, now: bool) -> None:
        if now:
            self._take(at, m.ChannelOpen(), ready=False)

    @rule(
        at=PLACES, now=RARELY,
        method=st.sampled_from([m.QueueDeclare, m.BasicQos, m.BasicAck, m.ChannelClose, m.ChannelFlow]),
    )  # fmt: skip
    def without_a_channel(self, at: Place, method: type[m.Method], now: bool) -> None:
        """A method on a closed channel."""
        if now:
            self._take((at[0], 1), m.ChannelFlow(True))
            self._take((at[0], 5), method(), ready=False)

    @rule(at=PLACES, now=RARELY, method=st.sampled_from(arguments.OUT_OF_PLACE))
    def out_of_place(self, at: Place, method: m.Method, now: bool) -> None:
        if now:
            self._take(at, copy.deepcopy(method))

    @rule(at=PLACES, now=RARELY, method=st.sampled_from(arguments.OUT_OF_PLACE_ON_0))
    def out_of_place_on_the_connection(self, at: Place, method: m.Method, now: bool) -> None:
        if now:
            self._take((at[0], 0), copy.deepcopy(method), ready=False)

    @rule(at=PLACES, politely=EVEN, now=RARELY)
    def close_connection(self, at: Place, politely: bool, now: bool) -> None:
        if now and self.pair.connected(at[0]):
            self._take((at[0], 0), m.ConnectionClose(200, "bye", 0, 0) if politely else None, ready=False)
