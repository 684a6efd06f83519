"""AMQP's short strings, of 255 octets at most: names, routing keys, properties, and keys of headers."""

from __future__ import annotations

from dataclasses import fields

import pyarrow as pa
import pyarrow.compute as pc

from jumpmq.amqp.properties import Properties
from jumpmq.spark.errors import JumpMQError

MOST = 255
"""Maximum length of a short string, in octets."""

SHOWN = 40
"""Maximum number of characters shown of a refused value in an error."""


def require_short(column: pa.Array, subject: str) -> None:
    """Refuse texts longer than a short string.

    Args:
        column: text or octets.
        subject: description of a value of the column, for the error.

    Raises:
        JumpMQError: a value is too long; the error shows the first such value.
    """
    lengths = pc.binary_length(column)
    if (pc.max(lengths).as_py() or 0) > MOST:
        place = pc.index(pc.greater(lengths, MOST), True).as_py()
        value = column[place].as_py()
        raise _too_long(subject, value if isinstance(value, bytes) else value.encode())


def require_short_texts(properties: Properties) -> None:
    """Refuse properties with a text, or with a header's key, longer than a short string.

    Raises:
        JumpMQError: a text is too long; the error shows the first such text.
    """
    texts = [(f"a row's '{field.name}'", getattr(properties, field.name)) for field in fields(properties)]
    texts += [("the key of a row's header", header.name) for header in properties.headers or []]
    for subject, text in texts:
        if isinstance(text, str) and len(octets := text.encode(errors="surrogateescape")) > MOST:
            raise _too_long(subject, octets)


def _too_long(subject: str, value: bytes) -> JumpMQError:
    text = value.decode(errors="replace")
    shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
    return JumpMQError(f"{subject} is '{shown}' of {len(value)} octets, and must have at most {MOST}")
