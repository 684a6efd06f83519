"""Strategies for arguments of methods: names, keys, argument tables, properties, all valid and invalid.

All strategies draw from few values, so that steps interact: three queues, three exchanges, a handful of keys. `§`
stands for the prefix of the session's names.
"""

from typing import Any

from hypothesis import strategies as st

from jumpmq.amqp import methods as m
from jumpmq.amqp.fields import Field
from jumpmq.amqp.properties import Properties


def often(usual: Any, seldom: Any, times: int = 6) -> st.SearchStrategy[Any]:
    """A usual value most of the time, and now and then an unusual value. Both arguments are lists."""
    return st.sampled_from([*usual * times, *seldom])


QUEUES = often(
    ["§q1", "§q1", "§q2", "§q1", "§q1", "§q2", "§k1"],
    ["§q3", "§s1", "§s1", "§k2", "", "§none", "amq.mine", "amq.gen-@1", "§q\r\n1", "§qü", "§" + "q" * 240],
    12,
)
EXCHANGES = often(
    ["§e1", "§e1", "§e2", "§e2", "amq.topic", "amq.headers"],
    ["§e3", "", "amq.direct", "amq.fanout", "amq.match", "amq.rabbitmq.trace", "§none", "amq.new", "§e\n1", "§eü"],
    4,
)
BUILT_IN_TYPES = st.sampled_from(["direct", "fanout", "topic", "headers"])
EXCHANGE_TYPES = often(
    ["direct", "fanout", "topic", "headers"], ["x-consistent-hash", "x-modulus-hash", "x-unknown", "", "DIRECT"], 6
)
OUT_OF_PLACE: list[m.Method] = [
    m.AccessRequest(), m.BasicConsumeOk("c1"), m.BasicGetEmpty(),
    m.BasicRecoverOk(), m.ChannelCloseOk(), m.ChannelFlowOk(True), m.ChannelOpenOk(), m.ConfirmSelectOk(),
    m.ConnectionOpen("/"), m.QueueDeclareOk("§q1", 0, 0), m.TxCommitOk(),
]  # fmt: skip
"""Methods out of place on any channel: valid only at another time, or only from a broker."""
OUT_OF_PLACE_ON_0: list[m.Method] = [
    m.ConnectionBlocked("x"), m.ConnectionOpen("/"), m.ConnectionStartOk([], "PLAIN", b"\0guest\0guest", "en_US"),
    m.ConnectionTuneOk(10, 4096, 0), m.ConnectionUnblocked(), m.ConnectionCloseOk(), m.ConnectionSecureOk(b""),
    m.ConnectionUpdateSecret(b"", "why"), m.ConnectionOpenOk(), m.QueueDeclare(queue="§q1"),
    m.BasicAck(1, False), m.ChannelClose(200, "bye", 0, 0), m.ConnectionUpdateSecretOk(),
]  # fmt: skip
"""Methods out of place on channel 0."""
KEYS = often(
    [b"", b"1", b"2", b"a", b"a.b", b"a.b.c", b"*", b"#", b"a.*", b"a.#", b"#.b"],
    [b"10001", b"-1", b"w", b"\xff", b"k" * 255],
    4,
)
TAGS = often(["c1", "c2"], ["", "amq.ctag-@1"], 3)
"""Consumer tags."""

INTEGERS = st.sampled_from(
    [
        ("I", 0),
        ("I", 1),
        ("I", 2),
        ("I", -1),
        ("l", 5),
        ("b", 3),
        ("B", 200),
        ("s", 7),
        ("u", 9),
        ("i", 1 << 31),
        ("l", 1 << 40),
        ("l", -(1 << 40)),
        ("L", 4),
    ]
)
NOT_INTEGERS = st.sampled_from(
    [
        ("S", "1"), ("S", "high"), ("t", True), ("V", None), ("d", 1.5), ("f", 2.0), ("D", (1, 15)),
        ("T", 1_500_000_000), ("x", b"octets"), ("A", [("I", 1), ("S", "a")]), ("F", [Field("k", "I", 1)]),
    ]
)  # fmt: skip
VALUES = INTEGERS | NOT_INTEGERS


def _string(*usual: str) -> st.SearchStrategy[tuple[str, Any]]:
    return st.sampled_from([("S", text) for text in usual * 3] + [("S", "unheard-of")]) | VALUES


_TIMES = st.sampled_from([("I", 60_000), ("l", 3_600_000), ("I", 0), ("I", -1), ("l", 1 << 40)])
"""Milliseconds: zero, hours, or invalid, but none that ends within a session."""

_QUEUE_ARGUMENTS: dict[str, st.SearchStrategy[tuple[str, Any]]] = {
    "x-message-ttl": _TIMES | NOT_INTEGERS,
    "x-expires": _TIMES | NOT_INTEGERS,
    "x-max-length": st.sampled_from([("I", 0), ("I", 1), ("l", 2)]) | VALUES,
    "x-max-length-bytes": st.sampled_from([("I", 0), ("I", 10), ("l", 100)]) | VALUES,
    "x-overflow": _string("drop-head", "reject-publish", "reject-publish-dlx"),
    "x-dead-letter-exchange": _string("", "§e1", "amq.fanout", "§none"),
    "x-dead-letter-routing-key": _string("§q2", "§q3", "a", ""),
    "x-max-priority": st.sampled_from([("I", 1), ("b", 10), ("I", 255), ("I", 256)]) | VALUES,
    "x-queue-mode": _string("default", "lazy"),
    "x-queue-version": VALUES,
    "x-queue-type": _string("classic"),
    "x-single-active-consumer": st.sampled_from([("t", True), ("t", False)]) | VALUES,
    "x-queue-master-locator": st.sampled_from([("S", "min-masters"), ("S", "client-local"), ("S", "random")]),
    "x-delivery-limit": INTEGERS,
    "x-queue-leader-locator": _string("balanced"),
    "x-max-age": _string("1D"),
    "x-max-in-memory-length": INTEGERS,
    "x-quorum-initial-group-size": INTEGERS,
    "x-dead-letter-strategy": _string("at-most-once"),
    "x-unheard-of": VALUES,
}  # fmt: skip
_GOOD_QUEUE_ARGUMENTS: dict[str, st.SearchStrategy[tuple[str, Any]]] = {
    "x-message-ttl": st.sampled_from([("I", 60_000), ("I", 0)]),
    "x-max-length": st.sampled_from([("I", 0), ("I", 1), ("I", 2)]),
    "x-max-length-bytes": st.sampled_from([("I", 0), ("I", 4), ("I", 10)]),
    "x-overflow": st.sampled_from([("S", "drop-head"), ("S", "reject-publish"), ("S", "reject-publish-dlx")]),
    "x-dead-letter-exchange": st.sampled_from([("S", ""), ("S", "§e1"), ("S", "§e2"), ("S", "§none")]),
    "x-max-priority": st.sampled_from([("I", 1), ("I", 5), ("I", 255)]),
    "x-queue-mode": st.sampled_from([("S", "default"), ("S", "lazy")]),
    "x-single-active-consumer": st.sampled_from([("t", True), ("t", False)]),
}

_QUORUM_ARGUMENTS = {
    name: _GOOD_QUEUE_ARGUMENTS[name] for name in ("x-max-length", "x-dead-letter-exchange", "x-single-active-consumer")
} | {"x-delivery-limit": st.sampled_from([("I", 0), ("I", 1), ("I", 3)])}
_STREAM_ARGUMENTS = {
    "x-max-length-bytes": st.sampled_from([("I", 1000), ("l", 1 << 30)]),
    "x-max-age": st.sampled_from([("S", "1D"), ("S", "1h")]),
    "x-stream-max-segment-size-bytes": st.sampled_from([("I", 1 << 20)]),
}

_EXCHANGE_ARGUMENTS = {
    "alternate-exchange": _string("§e2", "amq.fanout", "§none", ""),
    "hash-header": st.sampled_from([("S", "h"), ("S", "")]),
    "hash-property": st.sampled_from([("S", "message_id"), ("S", "timestamp"), ("S", "app_id")]),
    "x-unheard-of": VALUES,
}
_BINDING_ARGUMENTS = {
    "x-match": _string("all", "any", "all-with-x", "any-with-x"),
    "h": VALUES,
    "g": VALUES,
    "x-h": VALUES,
}
_CONSUMER_ARGUMENTS = {
    "x-priority": INTEGERS | VALUES,
    "x-cancel-on-ha-failover": st.sampled_from([("t", True), ("t", False)]) | VALUES,
    "x-stream-offset": _string("first"),
    "x-unheard-of": VALUES,
}


def _tables(known: dict[str, st.SearchStrategy[tuple[str, Any]]], most: int = 2) -> st.SearchStrategy[list[Field]]:
    one = st.sampled_from(sorted(known)).flatmap(lambda name: known[name].map(lambda value: Field(name, *value)))
    return st.just([]) | st.lists(one, max_size=most, unique_by=lambda field: field.name)


QUEUE_ARGUMENTS = _tables(_QUEUE_ARGUMENTS, 3)
GOOD_QUEUE_ARGUMENTS = _tables(_GOOD_QUEUE_ARGUMENTS, 3)
QUORUM = _tables(_QUORUM_ARGUMENTS).map(lambda table: [Field("x-queue-type", "S", "quorum"), *table])
STREAM = _tables(_STREAM_ARGUMENTS).map(lambda table: [Field("x-queue-type", "S", "stream"), *table])
OFFSETS = st.sampled_from(
    [[]]
    + [[Field("x-stream-offset", *offset)] for offset in [("S", "first")] * 6 + [
        ("S", "next"), ("l", 1), ("I", 0), ("l", 1000), ("S", "x"), ("S", ""), ("T", 0), ("T", 1 << 33), ("S", "1h"),
        ("S", "5 days"), ("l", -1), ("d", 1.5), ("t", True), ("V", None),
    ]]
)  # fmt: skip
"""Start offsets of a stream's reader; `last` is excluded, because it depends on the chunks."""
EXCHANGE_ARGUMENTS = _tables(_EXCHANGE_ARGUMENTS)
BINDING_ARGUMENTS = _tables(_BINDING_ARGUMENTS, 3)
CONSUMER_ARGUMENTS = _tables(_CONSUMER_ARGUMENTS)

_DEATHS = st.lists(
    st.fixed_dictionaries(
        {"queue": st.sampled_from(["§q1", "§q2", "old"]), "reason": st.sampled_from(["rejected", "expired", "maxlen"])},
        optional={"count": st.sampled_from([1, 5]), "exchange": st.sampled_from(["", "§e1"])},
    ).map(lambda death: ("F", [Field(name, "l" if name == "count" else "S", value) for name, value in death.items()])),
    max_size=2,
).map(lambda deaths: ("A", deaths))
_COPIES = st.lists(
    st.sampled_from([("S", "§q1"), ("S", "§q2"), ("S", "a"), ("S", "a.b")] * 3 + [("I", 1), ("V", None)]), max_size=2
).map(lambda keys: ("A", keys))
_HEADERS = _tables(
    {
        "h": VALUES,
        "g": VALUES,
        "x-h": VALUES,
        "CC": _COPIES | _COPIES | VALUES,
        "BCC": _COPIES | _COPIES | VALUES,
        "x-death": _DEATHS | _DEATHS | VALUES,
        "x-first-death-queue": VALUES,
        "x-delivery-count": VALUES,
        "x-stream-offset": VALUES,
        "x-unheard-of": VALUES,
    },
    3,
)
_TEXT = st.sampled_from(["", "text", "ü", "§q1"])

PROPERTIES: st.SearchStrategy[Properties] = st.just(Properties()) | st.builds(
    Properties,
    content_type=st.none() | _TEXT,
    content_encoding=st.none() | _TEXT,
    headers=st.none() | _HEADERS,
    delivery_mode=st.sampled_from([None, None, 1, 2, 0, 3]),
    priority=st.sampled_from([None, None, 0, 1, 5, 10, 255]),
    correlation_id=st.none() | _TEXT,
    reply_to=st.sampled_from([None] * 8 + ["§q1", "amq.rabbitmq.reply-to", "amq.rabbitmq.reply-to.forged"]),
    expiration=st.sampled_from(
        [None] * 12 + ["60000", "3600000", "0", "", "-1", "abc", "1.5", "10 ms", "+60000", "315360000001"]
    ),
    message_id=st.none() | _TEXT,
    timestamp=st.sampled_from([None, None, 0, 1_500_000_000, (1 << 64) - 1]),
    type=st.none() | _TEXT,
    user_id=st.sampled_from([None] * 8 + ["guest", "limited", "root", ""]),
    app_id=st.none() | _TEXT,
    cluster_id=st.none() | _TEXT,
)  # fmt: skip
_POLICY_VALUES: dict[str, list[Any]] = {
    "max-length": [0, 1, 2, 2, -1, "2"],
    "max-length-bytes": [10, 100, -1],
    "message-ttl": [60_000, 3_600_000, -1],
    "expires": [600_000, 0],
    "overflow": ["drop-head", "reject-publish", "reject-publish-dlx", "other"],
    "dead-letter-exchange": ["", "§e1", "§e2", 1],
    "dead-letter-routing-key": ["§q2", "a"],
    "alternate-exchange": ["§e2", "amq.fanout", 7],
    "delivery-limit": [1, 2, -1],
    "queue-mode": ["lazy", "other"],
    "max-age": ["1D", "soon"],
    "dead-letter-strategy": ["at-most-once", "at-least-once", "never"],
    "queue-version": [1, 2, 3],
    "max-in-memory-length": [1, -1],
    "unheard-of": [1],
}
POLICIES = st.fixed_dictionaries(
    {
        "pattern": st.sampled_from(["^§q", "^§q1", "^§e", "^§"] * 5 + ["("]),
        "definition": st.lists(st.sampled_from(sorted(_POLICY_VALUES)), min_size=1, max_size=2, unique=True).flatmap(
            lambda keys: st.fixed_dictionaries({key: st.sampled_from(_POLICY_VALUES[key]) for key in keys})
        ),
    },
    optional={
        "apply-to": st.sampled_from(["queues", "exchanges", "all", "queues", "queues", "nothing"]),
        "priority": st.sampled_from([0, 1, 5, "high"]),
    },
)

BODIES = st.sampled_from([b"", b"one", b"two", b"three", b"long" * 30] * 8 + [b"frames" * 30_000])


def prefixed(value: Any, prefix: str) -> Any:
    """The value with the prefix in place of `§`."""
    match value:
        case str():
            return value.replace("§", prefix)
        case Field(name, kind, inner):
            return Field(name, kind, prefixed(inner, prefix))
        case tuple():
            return tuple(prefixed(one, prefix) for one in value)
        case list():
            return [prefixed(one, prefix) for one in value]
        case dict():
            return {key: prefixed(inner, prefix) for key, inner in value.items()}
        case Properties():
            return Properties(
                **{name: prefixed(getattr(value, name), prefix) for name in Properties.__dataclass_fields__}
            )
    return value
