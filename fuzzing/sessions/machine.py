"""The state machine that invents sessions (hypothesis, stateful testing): a rule a method, on both brokers at once."""

from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from fuzzing.sessions import arguments
from fuzzing.sessions.pair import Pair
from fuzzing.sessions.side import Place, Step
from jumpmq.amqp import methods as m
from jumpmq.amqp.fields import Field
from jumpmq.amqp.properties import Properties

PLACES = st.sampled_from([(1, 1)] * 6 + [(1, 2)] * 2 + [(2, 1)] * 3 + [(3, 1)])
SELDOM = st.sampled_from([False] * 5 + [True])
EVEN = st.booleans()
DELIVERY_TAGS = st.sampled_from([1, 1, 1, 2, 2, 3, 4, 0, 99, (1 << 64) - 1])


class Sessions(RuleBasedStateMachine):
    """One session, on the two brokers of ``pair``."""

    pair: ClassVar[Pair]

    def __init__(self) -> None:
        super().__init__()
        self.pair.begin()

    def teardown(self) -> None:
        self.pair.end()

    def _take(
        self, at: Place, method: m.Method | None, properties: Properties | None = None, body: bytes = b"", *,
        ready: bool = True,
    ) -> None:  # fmt: skip
        if self.pair.over:
            return
        self.pair.ready(at, channel=ready)
        if method is not None:
            prefix = self.pair.prefix
            for name in method.__dataclass_fields__:
                setattr(method, name, arguments.prefixed(getattr(method, name), prefix))
        octets = arguments.prefixed(properties, self.pair.prefix).encode() if properties is not None else b"\0\0"
        self.pair.take(Step(at, method, octets, body))

    @initialize(
        queues=st.lists(st.tuples(arguments.QUEUE_ARGUMENTS, SELDOM), max_size=2),
        exchanges=st.lists(st.tuples(arguments.BUILT_IN_TYPES, arguments.KEYS), max_size=2),
    )
    def something_to_begin_with(self, queues: Any, exchanges: Any) -> None:
        for number, (table, exclusive) in enumerate(queues, 1):
            self._take((1, 1), m.QueueDeclare(queue=f"§q{number}", exclusive=exclusive, arguments=table))
        for number, (kind, key) in enumerate(exchanges, 1):
            self._take((1, 1), m.ExchangeDeclare(exchange=f"§e{number}", type=kind))
            if queues:
                self._take((1, 1), m.QueueBind(queue="§q1", exchange=f"§e{number}", routing_key=key))

    # --- exchanges and queues ---

    @rule(
        at=PLACES, name=arguments.EXCHANGES, kind=arguments.EXCHANGE_TYPES, passive=SELDOM, durable=EVEN,
        auto_delete=SELDOM, internal=SELDOM, no_wait=SELDOM, table=arguments.EXCHANGE_ARGUMENTS,
    )  # fmt: skip
    def exchange_declare(
        self, at: Place, name: str, kind: str, passive: bool, durable: bool, auto_delete: bool, internal: bool,
        no_wait: bool, table: list[Field],
    ) -> None:  # fmt: skip
        self._take(at, m.ExchangeDeclare(0, name, kind, passive, durable, auto_delete, internal, no_wait, table))

    @rule(at=PLACES, name=arguments.EXCHANGES, if_unused=EVEN, no_wait=SELDOM)
    def exchange_delete(self, at: Place, name: str, if_unused: bool, no_wait: bool) -> None:
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
        at=PLACES, name=arguments.QUEUES, passive=SELDOM, durable=EVEN, exclusive=SELDOM, auto_delete=SELDOM,
        no_wait=SELDOM, table=arguments.QUEUE_ARGUMENTS,
    )  # fmt: skip
    def queue_declare(
        self, at: Place, name: str, passive: bool, durable: bool, exclusive: bool, auto_delete: bool, no_wait: bool,
        table: list[Field],
    ) -> None:  # fmt: skip
        self._take(at, m.QueueDeclare(0, name, passive, durable, exclusive, auto_delete, no_wait, table))

    @rule(
        at=PLACES, queue=arguments.QUEUES, exchange=arguments.EXCHANGES, key=arguments.KEYS, no_wait=SELDOM,
        table=arguments.BINDING_ARGUMENTS,
    )  # fmt: skip
    def queue_bind(self, at: Place, queue: str, exchange: str, key: bytes, no_wait: bool, table: list[Field]) -> None:
        self._take(at, m.QueueBind(0, queue, exchange, key, no_wait, table))

    @rule(
        at=PLACES, queue=arguments.QUEUES, exchange=arguments.EXCHANGES, key=arguments.KEYS,
        table=arguments.BINDING_ARGUMENTS,
    )  # fmt: skip
    def queue_unbind(self, at: Place, queue: str, exchange: str, key: bytes, table: list[Field]) -> None:
        self._take(at, m.QueueUnbind(0, queue, exchange, key, table))

    @rule(at=PLACES, name=arguments.QUEUES, no_wait=SELDOM)
    def queue_purge(self, at: Place, name: str, no_wait: bool) -> None:
        self._take(at, m.QueuePurge(0, name, no_wait))

    @rule(at=PLACES, name=arguments.QUEUES, if_unused=EVEN, if_empty=EVEN, no_wait=SELDOM)
    def queue_delete(self, at: Place, name: str, if_unused: bool, if_empty: bool, no_wait: bool) -> None:
        self._take(at, m.QueueDelete(0, name, if_unused, if_empty, no_wait))

    # --- messages ---

    @rule(
        at=PLACES, exchange=arguments.EXCHANGES, key=arguments.KEYS, mandatory=EVEN,
        immediate=st.sampled_from([False] * 30 + [True]), properties=arguments.PROPERTIES, body=arguments.BODIES,
    )  # fmt: skip
    def publish(
        self, at: Place, exchange: str, key: bytes, mandatory: bool, immediate: bool, properties: Properties,
        body: bytes,
    ) -> None:  # fmt: skip
        self._take(at, m.BasicPublish(0, exchange, key, mandatory, immediate), properties, body)

    @rule(at=PLACES, queue=arguments.QUEUES, properties=arguments.PROPERTIES, body=arguments.BODIES)
    def publish_to_queue(self, at: Place, queue: str, properties: Properties, body: bytes) -> None:
        key = queue.replace("§", self.pair.prefix).encode()
        self._take(at, m.BasicPublish(0, "", key, False, False), properties, body)

    @rule(at=PLACES, queue=arguments.QUEUES, times=st.integers(2, 4))
    def publish_several(self, at: Place, queue: str, times: int) -> None:
        key = queue.replace("§", self.pair.prefix).encode()
        for number in range(times):
            self._take(at, m.BasicPublish(0, "", key, False, False), Properties(), b"%d" % number)

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

    @rule(at=PLACES, tag=arguments.TAGS, no_wait=SELDOM)
    def cancel(self, at: Place, tag: str, no_wait: bool) -> None:
        self._take(at, m.BasicCancel(tag, no_wait))

    @rule(at=PLACES, tag=DELIVERY_TAGS, multiple=EVEN)
    def ack(self, at: Place, tag: int, multiple: bool) -> None:
        self._take(at, m.BasicAck(tag, multiple))

    @rule(at=PLACES, tag=DELIVERY_TAGS, multiple=EVEN, requeue=EVEN)
    def nack(self, at: Place, tag: int, multiple: bool, requeue: bool) -> None:
        self._take(at, m.BasicNack(tag, multiple, requeue))

    @rule(at=PLACES, tag=DELIVERY_TAGS, requeue=EVEN)
    def reject(self, at: Place, tag: int, requeue: bool) -> None:
        self._take(at, m.BasicReject(tag, requeue))

    @rule(at=PLACES, requeue=st.sampled_from([True] * 5 + [False]), answered=EVEN)
    def recover(self, at: Place, requeue: bool, answered: bool) -> None:
        self._take(at, m.BasicRecover(requeue) if answered else m.BasicRecoverAsync(requeue))

    @rule(
        at=PLACES, size=st.sampled_from([0] * 8 + [10]), count=st.sampled_from([0, 1, 1, 2, 3, 65535]), whole=SELDOM
    )  # fmt: skip
    def qos(self, at: Place, size: int, count: int, whole: bool) -> None:
        self._take(at, m.BasicQos(size, count, whole))

    # --- modes ---

    @rule(at=PLACES, no_wait=SELDOM)
    def confirm_select(self, at: Place, no_wait: bool) -> None:
        self._take(at, m.ConfirmSelect(no_wait))

    @rule(at=PLACES, method=st.sampled_from([m.TxSelect, m.TxSelect, m.TxCommit, m.TxCommit, m.TxRollback]))
    def tx(self, at: Place, method: type[m.Method]) -> None:
        self._take(at, method())

    # --- channels and connections ---

    @rule(at=PLACES, active=st.sampled_from([True] * 5 + [False]))
    def flow(self, at: Place, active: bool) -> None:
        self._take(at, m.ChannelFlow(active))

    @rule(at=PLACES)
    def close_channel(self, at: Place) -> None:
        self._take(at, m.ChannelClose(200, "bye", 0, 0))

    @rule(at=PLACES, again=SELDOM)
    def open_channel(self, at: Place, again: bool) -> None:
        if again or not self.pair.is_open(at):
            self._take(at, m.ChannelOpen(), ready=False)

    @rule(
        at=PLACES,
        method=st.sampled_from([m.QueueDeclare, m.BasicQos, m.BasicAck, m.ChannelClose, m.ChannelFlow]),
        now=SELDOM,
    )
    def without_a_channel(self, at: Place, method: type[m.Method], now: bool) -> None:
        """A method on a channel that is not open."""
        if now:
            self._take((at[0], 1), m.ChannelFlow(True))
            self._take((at[0], 5), method(), ready=False)

    @rule(at=PLACES, politely=EVEN, now=SELDOM)
    def close_connection(self, at: Place, politely: bool, now: bool) -> None:
        if now and self.pair.connected(at[0]):
            self._take((at[0], 0), m.ConnectionClose(200, "bye", 0, 0) if politely else None, ready=False)
