"""The records of remote channels. All begin with the number of the remote channel, which the client's home gives."""

import struct

OPEN, METHOD, SETTLE, PREFETCH, CREDIT, CLOSE, FRAMES = 68, 69, 70, 71, 72, 73, 74
"""Kinds: a channel is opened, with the client as JSON; a method, to be answered; what becomes of deliveries; the
prefetch of the whole channel; how many octets of frames have gone on to the client; the channel is closed; and, the
other way, AMQP frames."""

FRAME_REFUSAL = 9
"""Type of a frame that is AMQP's not: why a method is refused, its reply code and then the text."""

NUMBER = struct.Struct("!Q")

ASKED = struct.Struct("!QHH")
"""Before a method: the prefetch that a consumer gets, and that of the whole channel."""

SETTLED = struct.Struct("!QB")
"""Before delivery tags: the place of the outcome in :data:`OUTCOMES`."""

TWO = struct.Struct("!QQ")
"""The number and an amount: a prefetch, or octets."""

START = struct.Struct("!BHI")
"""Of a frame."""

CODE = struct.Struct("!H")

WINDOW = 1 << 20
"""Octets of frames that may be under way to a client before it gets no more deliveries."""
