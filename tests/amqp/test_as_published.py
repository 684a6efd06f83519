"""Headers added by brokers to deliveries are no part of the message."""

from typing import Any

import pytest

from jumpmq.amqp.client import as_published
from jumpmq.amqp.fields import Field
from jumpmq.amqp.properties import Properties

OFFSET, COUNT = Field("x-stream-offset", "l", 1 << 40), Field("x-delivery-count", "l", 3)
NUMBER, NESTED = Field("number", "I", 5), Field("table", "F", [OFFSET, COUNT])


def octets(*headers: Field, **more: Any) -> bytes:
    return Properties(content_type=more.pop("content_type", None), headers=list(headers) or None, **more).encode()


@pytest.mark.parametrize("more", [{}, {"content_type": "a", "content_encoding": "b"}, {"message_id": "m"}])
@pytest.mark.parametrize("published", [(), (NUMBER,), (NESTED,), (NUMBER, NESTED)])
@pytest.mark.parametrize("added", [(OFFSET,), (COUNT,), (OFFSET, COUNT)])
def test_a_delivery_becomes_what_was_published(
    added: tuple[Field, ...], published: tuple[Field, ...], more: dict[str, str]
) -> None:
    assert as_published(octets(*added, *published, **more)) == octets(*published, **more)
    assert as_published(octets(*published, *added, **more)) == octets(*published, **more)


def test_what_only_looks_like_it_stays() -> None:
    looks = Properties(content_type="x-stream-offset", message_id="x-delivery-count").encode()
    assert as_published(looks) == looks
    assert as_published(octets(NESTED)) == octets(NESTED)
    assert as_published(octets()) == octets()
