"""Scatter reads: the rest of a large body is read directly into the body's memory.

How it works. A client cuts a body into frames of one size, so the end of each frame is known in advance. One read of
the socket fills several buffers, one after the other: the rest of the begun payload, the eight octets between two
payloads (the end of a frame, the beginning of the next frame), the next payload, and so on; the last buffer is for the
octets after the body. If eight such octets differ from the expected ones, the client has used another frame size: the
octets from there on are joined, and parsed like octets of an ordinary read.
"""

from jumpmq.amqp.frames import FRAME_BODY, FRAME_END, FRAME_OVERHEAD

MOST_FRAMES = 16
"""Maximum number of frames anticipated by a read: two megabytes of the largest frames."""


class Scatter:
    """Buffers of a scatter read.

    Args:
        room: memory of the missing part of the body.
        channel: the body's channel.
        begun: missing octets of the begun frame's payload.
        length: octets of the payload of each further frame, except the last one.
        behind: buffer for the octets after the body, eight octets at least.

    Attributes:
        buffers: buffers to be filled in order.
        size: octets of all buffers.
    """

    def __init__(self, room: memoryview, channel: int, begun: int, length: int, behind: memoryview) -> None:
        self._channel = channel
        self._sizes = [begun]
        missing = len(room) - begun
        while missing and len(self._sizes) < MOST_FRAMES:
            self._sizes.append(min(length, missing))
            missing -= self._sizes[-1]
        gaps = memoryview(bytearray(FRAME_OVERHEAD * len(self._sizes)))
        self.buffers = []
        start = 0
        for number, size in enumerate(self._sizes):
            self.buffers.append(room[start : start + size])
            self.buffers.append(gaps[FRAME_OVERHEAD * number : FRAME_OVERHEAD * (number + 1)])
            start += size
        if not missing:
            self.buffers[-1] = behind
        self.size = sum(map(len, self.buffers))

    def sort(self, octets: int) -> tuple[int, int, bytes | memoryview]:
        """Attribute the ``octets`` of a read to body and frame headers.

        Returns:
            Number of octets in the body, number of missing octets of the begun frame's payload, and the octets to
            parse as usual.
        """
        placed = 0
        for number, size in enumerate(self._sizes):
            if number:
                gap = self.buffers[2 * number - 1]
                # The client has cut its frames otherwise, so the rest is parsed as usual.
                if octets < FRAME_OVERHEAD or gap != self._between(size):
                    return placed, 0, b"".join(self.buffers[2 * number - 1 :])[:octets]
                octets -= FRAME_OVERHEAD
            if octets < size:
                return placed + octets, size - octets, b""
            placed += size
            octets -= size
        return placed, 0, self.buffers[-1][:octets]

    def _between(self, size: int) -> bytes:
        """Return the end of a frame and the beginning of the next frame."""
        return b"%c%c%b%b" % (FRAME_END, FRAME_BODY, self._channel.to_bytes(2), size.to_bytes(4))
