"""Consumers and messages for tests of queues."""

from jumpmq.amqp.fields import Field
from jumpmq.amqp.messages import Message
from jumpmq.queues import Outcome
from jumpmq.queues.classic import ClassicQueue
from jumpmq.queues.consumer import Rows


class Taker:
    """A consumer that holds deliveries until told to settle."""

    def __init__(
        self,
        queue: ClassicQueue,
        prefetch: int = 0,
        *,
        no_ack: bool = False,
        exclusive: bool = False,
        priority: int = 0,
    ) -> None:
        self.tag = f"taker-{len(queue.consumers)}"
        self.prefetch = prefetch
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.priority = priority
        self.arguments: list[Field] = []
        self.queue = queue
        self.held: list[Message] = []
        self.epochs: list[int] = []
        self.gone = False
        self.willing = True
        self.passed = 0
        self.asked = 0

    def start(self) -> "Taker":
        self.queue.subscribe(self)
        self.queue.dispatch()
        return self

    @property
    def shares_capacity(self) -> bool:
        return False

    def passed_over(self) -> None:
        self.passed += 1

    def capacity(self) -> int:
        self.asked += 1
        if not self.willing:
            return 0
        return self.prefetch - len(self.held) if self.prefetch and not self.no_ack else 1000

    def deliver(self, messages: list[Message]) -> None:
        self.held += messages

    def deliver_rows(self, rows: Rows) -> None:
        raise NotImplementedError  # of streams alone

    def owns(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def cancelled(self) -> None:
        self.gone = True

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.held]

    def ack(self, count: int) -> None:
        """Acknowledge the oldest deliveries."""
        done, self.held = self.held[:count], self.held[count:]
        self.queue.settle(done, Outcome.ACKNOWLEDGED)
        self.resume()

    def resume(self) -> None:
        """Take messages again."""
        self.willing = True
        self.queue.admit(self)
        self.queue.serve(self)

    def give_back(self) -> None:
        """Stop consuming and return everything, as a closed channel does."""
        self.queue.unsubscribe(self)
        held, self.held = self.held, []
        self.queue.settle(held, Outcome.REQUEUED)


def message(body: bytes, *, persistent: bool = False) -> Message:
    return Message("", b"q", b"\x10\x00\x02" if persistent else b"\0\0", body, persistent, 1_700_000_000.0)


def push(queue: ClassicQueue, *bodies: bytes) -> list[bytes]:
    """Publish to a queue; return the bodies of refused messages."""
    return [refused.body for refused in queue.push([message(body) for body in bodies])]


def ready(queue: ClassicQueue) -> list[bytes]:
    """Return the bodies of the ready messages."""
    return [message.body for message in queue.peek(0, queue.next_seq)]
