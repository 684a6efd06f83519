"""AMQP reply codes as exceptions: one type per code in use, raised where the rule is checked and encoded in one place.

A soft error closes its channel, a hard error the whole connection (AMQP 0-9-1, section 1.2 "reply codes", as amended by
RabbitMQ). The text of an error follows the code's name on the wire:
``NotFound("no queue 'x' in vhost '/'")`` is sent as ``404 NOT_FOUND - no queue 'x' in vhost '/'``.
"""

from typing import ClassVar


class AMQPError(Exception):
    """Base of all protocol errors.

    Attributes:
        code: the reply code, 311 to 541.
        name: the reply code's name as RabbitMQ spells it, such as ``NOT_FOUND``.
        hard: True if the connection closes, False if only the channel closes.
        text: the explanation, without the name.
    """

    code: ClassVar[int]
    name: ClassVar[str]
    hard: ClassVar[bool]

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    @property
    def reply_text(self) -> str:
        """The text on the wire, with the code's name, cut to the 255 octets of a short string."""
        return cut_short(f"{self.name} - {self.text}")


def cut_short(text: str) -> str:
    """Shorten ``text`` to a short string's 255 octets, with ``...`` at the end, as RabbitMQ does.

    Octets of a client that are not UTF-8 become question marks.
    """
    octets = text.encode("utf-8", "replace")
    return octets.decode() if len(octets) <= 255 else octets[:252].decode("utf-8", "ignore") + "..."


class ContentTooLarge(AMQPError):
    code, name, hard = 311, "CONTENT_TOO_LARGE", False


class NoRoute(AMQPError):
    code, name, hard = 312, "NO_ROUTE", False


class ConnectionForced(AMQPError):
    code, name, hard = 320, "CONNECTION_FORCED", True


class AccessRefused(AMQPError):
    code, name, hard = 403, "ACCESS_REFUSED", False


class NotFound(AMQPError):
    code, name, hard = 404, "NOT_FOUND", False


class ResourceLocked(AMQPError):
    code, name, hard = 405, "RESOURCE_LOCKED", False


class PreconditionFailed(AMQPError):
    code, name, hard = 406, "PRECONDITION_FAILED", False


class MalformedFrame(AMQPError):
    code, name, hard = 501, "FRAME_ERROR", True


class MalformedText(MalformedFrame):
    """A short string of text is not UTF-8."""


class MethodSyntaxError(AMQPError):
    code, name, hard = 502, "SYNTAX_ERROR", True


class CommandInvalid(AMQPError):
    code, name, hard = 503, "COMMAND_INVALID", True


class ChannelError(AMQPError):
    code, name, hard = 504, "CHANNEL_ERROR", True


class UnexpectedFrame(AMQPError):
    code, name, hard = 505, "UNEXPECTED_FRAME", True


class ResourceError(AMQPError):
    code, name, hard = 506, "RESOURCE_ERROR", True


class NotAllowed(AMQPError):
    code, name, hard = 530, "NOT_ALLOWED", True


class NotImplementedByServer(AMQPError):
    code, name, hard = 540, "NOT_IMPLEMENTED", True


class InternalError(AMQPError):
    code, name, hard = 541, "INTERNAL_ERROR", True


class MetadataTimeout(InternalError):
    """The sequencer of definitions has been unreachable for too long; the change may still be made later.

    RabbitMQ 4 closes the connection with 541 too.
    """
