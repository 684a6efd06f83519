"""Rendering of messages as JSON, one at a time, within the memory for all answers.

As Python objects, a header table takes twenty times its octets on the wire. Decoding and writing a large table take
tens of milliseconds. Each message is therefore converted to text at once, in a thread if its properties are long, and
the octets of all texts are charged to the memory account.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from jumpmq.amqp.messages import Message
from jumpmq.http.plumbing.answers import EncodedJSON, written
from jumpmq.http.plumbing.message_json import shown_message
from jumpmq.queues.memory import MemoryAccount

MAX_OCTETS = 16 << 20
"""Octets of JSON after which an answer gets no more messages, because the answer is held in memory."""

SHARE = 8
"""Divisor: all answers together may take this part of the memory limit. Beyond this part, an answer has a single
message.
"""

LONG = 4096
"""Octets of properties from which on a message is rendered in a thread (measured: 0.5 us an octet)."""

_thread = ThreadPoolExecutor(1, thread_name_prefix="rendering")  # one thread: more would take time from the event loop


class Rendered:
    """Messages of an answer, collected in a ``with`` block that releases the messages on failure.

    Attributes:
        texts: the messages, in order.
    """

    def __init__(self, memory: MemoryAccount, encoding: str, truncate: int | None) -> None:
        self.texts: list[EncodedJSON] = []
        self._memory = memory
        self._encoding, self._truncate = encoding, truncate
        self._octets = 0

    @property
    def room(self) -> int:
        """Octets that can be added; 0 or less if full."""
        everyone = self._memory.limit // SHARE - self._memory.by_kind["answers"]
        return min(MAX_OCTETS - self._octets, everyone)

    @property
    def is_full(self) -> bool:
        """True if no further message may be added. The first message is always allowed."""
        return bool(self.texts) and self.room <= 0

    async def add(self, message: Message, body: bytes, **more: Any) -> None:
        """Render a message.

        Args:
            body: the message's body, given because the message itself may have been paged out.
            more: further members of the object, written first.
        """
        if len(message.properties) < LONG:
            text = self._text(message, body, more)
        else:
            text = await asyncio.get_running_loop().run_in_executor(_thread, self._text, message, body, more)
        self.texts.append(text)
        self._octets += len(text)
        self._memory.charge("answers", len(text))

    def _text(self, message: Message, body: bytes, more: dict[str, Any]) -> EncodedJSON:
        return written(more | shown_message(message, body, self._encoding, self._truncate))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            self.release()

    def sent_by(self, response: Response) -> Response:
        """Return the response, changed to release the messages at the end."""
        return _Releasing(response, self)

    def release(self) -> None:
        """Release the memory, after the answer was written or cancelled."""
        self._memory.charge("answers", -self._octets)
        self._octets = 0
        self.texts.clear()


class _Releasing(Response):
    """Answers, and then releases the messages."""

    def __init__(self, response: Response, messages: Rendered) -> None:
        self._response, self._messages = response, messages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._response(scope, receive, send)
        finally:
            self._messages.release()
