"""Errors between Spark and a broker; an error's text is a sentence with the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

APPEND = 'write with .mode("append")'
"""Remedy for save modes refused by Spark or by this source."""

APPEND_STREAM = (
    'write with outputMode("append"), or what an aggregation updates within foreachBatch, with .mode("append") and the '
    "options txnAppId and txnVersion"
)
"""Remedy for refused output modes of streaming queries."""

_HINTS = {
    '[UNSUPPORTED_DATA_SOURCE_SAVE_MODE] The data source "jumpmq"': APPEND,
    "jumpmq does not support Update mode": APPEND_STREAM,
}
"""Remedies for errors of Spark, by the beginning of the text."""


def one_line(text: str) -> str:
    """Return a text with line breaks and other unprintable characters escaped.

    Names of queues and headers may contain such characters, and Spark splits an error into lines.
    """
    return text if text.isprintable() else "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


class JumpMQError(Exception):
    """A wrong option, or a request that the broker cannot fulfil; the text names the cause and the remedy.

    Args:
        text: a sentence; unprintable characters in the text are escaped.
    """

    def __init__(self, text: str) -> None:
        super().__init__(one_line(text))


class NotThere(JumpMQError):
    """The virtual host, exchange, queue or group does not exist."""


class MessagesGone(JumpMQError):
    """Reserved messages no longer exist."""


class GroupInUse(JumpMQError):
    """A second query reads for the group."""


class QueueInUse(JumpMQError):
    """The queue is read by a consumer group, a query of a second group, or a second source of the query."""


class NoSession(JumpMQError):
    """The broker has forgotten the query's session."""


class BrokerAway(JumpMQError):
    """No answer, or an incomplete answer."""


class TooLarge(JumpMQError):
    """The data is too large for a single request; a part of the data may be sent."""


def reason(error: BaseException) -> str:
    """Return an error's own sentence, without stack traces and plans of Spark.

    Args:
        error: an error raised by an action or a streaming query.
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
    if (own := _python_error(str(error))) is not None:
        return f"Spark failed: {own}"
    causes = [
        found[1] for start in (": ", "Caused by: ") for line in lines if (found := re.match(rf"{start}(\w.*)", line))
    ]
    return f"Spark failed: {(causes or lines or [type(error).__name__])[-1 if causes else 0]}"


def _python_error(text: str) -> str | None:
    """Return the exception's line of the last Python traceback, such as one of a function for ``foreachBatch``."""
    *_, last = text.split("Traceback (most recent call last):\n")
    lines = last.splitlines() if last != text else []
    return next((line for line in lines if line and not line[0].isspace()), None)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise errors of the block as one sentence, without the stack traces of Spark and Java; for notebooks.

    Raises:
        JumpMQError: an action or an awaited query has failed.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise JumpMQError(reason(error)) from None
