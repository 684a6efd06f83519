"""What goes wrong between Spark and a broker; each text is a sentence that says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

APPEND = 'write with .mode("append")'
"""What to write where Spark, or this source, refuses another mode."""

APPEND_STREAM = (
    'write with outputMode("append"), or what an aggregation updates within foreachBatch, with .mode("append") and the '
    "options txnAppId and txnVersion"
)
"""The same of output modes of streaming queries."""

_HINTS = {
    '[UNSUPPORTED_DATA_SOURCE_SAVE_MODE] The data source "jumpmq"': APPEND,
    "jumpmq does not support Update mode": APPEND_STREAM,
}
"""What Spark says itself, with what to write instead."""


class JumpMQError(Exception):
    """A wrong option, or a broker that cannot do what was asked; the text says which and what to do."""


class NotThere(JumpMQError):
    """The broker knows no such virtual host, exchange, queue or group."""


class Gone(JumpMQError):
    """What was reserved is not there any more."""


class GroupInUse(JumpMQError):
    """Another query reads for the group."""


class QueueInUse(JumpMQError):
    """A consumer group, a query of another group, or another source of the query reads the queue."""


class NoSession(JumpMQError):
    """The broker has forgotten the query's session."""


class BrokerAway(JumpMQError):
    """No answer, or one that broke off."""


class TooLarge(JumpMQError):
    """What was sent is too much for one request; part of it may be sent."""


def reason(error: BaseException) -> str:
    """The sentence that matters of an error, without Spark's account of where it came from.

    Args:
        error: as an action or a streaming query raised it.
    """
    if isinstance(error, JumpMQError):
        return str(error)
    lines = [line for line in map(str.strip, str(error).splitlines()) if line]
    ours = [line.partition(": ")[2] for line in lines if line.startswith("jumpmq.spark.errors.")]
    if ours:
        return ours[-1]
    for said, hint in _HINTS.items():
        if any(said in line for line in lines):
            return f"Spark failed: {lines[0]} For jumpmq, {hint}"
    causes = [line.removeprefix(start) for start in (": ", "Caused by: ") for line in lines if line.startswith(start)]
    return f"Spark failed: {(causes or lines or [type(error).__name__])[-1 if causes else 0]}"


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise what goes wrong in the block as one sentence, for notebooks: without Spark's and Java's lines.

    Raises:
        JumpMQError: an action, or a query that is waited for, has failed.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise JumpMQError(reason(error)) from None
