"""Reading of a stream's messages, cut from its files."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from jumpmq.amqp.errors import ResourceError
from jumpmq.amqp.messages import Message
from jumpmq.queues.view import View
from jumpmq.store.errors import Unreadable
from jumpmq.store.stream_log import StreamLog
from jumpmq.store.stream_segment import messages_of

if TYPE_CHECKING:
    import pyarrow as pa


class StreamView(View):
    """Messages of a stream whose files are here.

    Args:
        log: the files of the stream.
        subject: the stream in texts of errors.

    Raises:
        ResourceError: raised by methods that read files, if the disk does not return stored data.
    """

    __slots__ = ("_log", "_subject")

    def __init__(self, log: StreamLog, subject: str) -> None:
        super().__init__(log.end)
        self._log = log
        self._subject = subject

    def browse(self, first_seq: int, last_seq: int) -> Iterator[list[Message]]:
        return (list(messages_of(batch)) for batch in self.record_batches(first_seq, last_seq))

    def record_batches(self, first_seq: int, last_seq: int) -> "Iterator[pa.RecordBatch]":
        try:
            yield from self._log.read(first_seq, last_seq)
        except Unreadable as error:
            raise self._unreadable(error) from None

    def ready_range(self) -> tuple[int, int]:
        return self._log.first, self._log.end - 1

    def seq_at(self, timestamp: float) -> int:
        try:
            return self._log.offset_of(timestamp)
        except Unreadable as error:
            raise self._unreadable(error) from None

    def mark_of(self, seq: int) -> int | None:
        try:
            return self._log.written_at(seq)
        except Unreadable as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: Unreadable) -> ResourceError:
        return ResourceError(f"{self._subject} cannot be read: {error.reason}")
