"""Reply texts fit into a short string, for any quoted input of a client."""

import pytest

from jumpmq.amqp.errors import PreconditionFailed


@pytest.mark.parametrize(
    ("text", "reply_text"),
    [
        ("queue 'é' not empty", "PRECONDITION_FAILED - queue 'é' not empty"),
        ("invalid expiration 'soo\udcff': no_integer", "PRECONDITION_FAILED - invalid expiration 'soo?': no_integer"),
        ("x" * 300, "PRECONDITION_FAILED - " + "x" * 230 + "..."),
        ("é" * 200, "PRECONDITION_FAILED - " + "é" * 115 + "..."),
    ],
)
def test_reply_texts(text: str, reply_text: str) -> None:
    assert PreconditionFailed(text).reply_text == reply_text
    assert len(reply_text.encode()) <= 255
