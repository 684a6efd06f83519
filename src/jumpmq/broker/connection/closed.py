"""Placeholder for the transport of a closed connection.

uvloop's transport for TLS keeps the receiving methods of a buffered protocol. A protocol with a reference to this
transport is part of a reference cycle, with a buffer of 256 KB and OpenSSL's state of the connection, and garbage
collections are rare in a serving broker. A protocol therefore replaces its transport by this one in
``connection_lost``.
"""

import asyncio
from typing import Any


class ClosedTransport(asyncio.Transport):
    """Accepts every call, and does nothing."""

    def is_closing(self) -> bool:
        return True

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def write(self, data: Any) -> None: ...

    def writelines(self, list_of_data: Any) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


CLOSED = ClosedTransport()
"""Stateless instance shared by all connections."""
