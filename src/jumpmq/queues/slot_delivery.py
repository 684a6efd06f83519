"""Delivery from a queue with slots. Members of a consumer group each have a share of the slots."""

from typing import Protocol

from jumpmq.amqp.messages import Message
from jumpmq.queues.consumer import Consumer
from jumpmq.queues.delivery import CHUNK, STEP, DeliverySource, QueueDelivery
from jumpmq.queues.runs import body_octets
from jumpmq.queues.slots import Share


class SlotSource(DeliverySource, Protocol):
    """A queue with slots as seen by delivery."""

    def take_from(self, share: Share, count: int) -> list[Message]:
        """As ``take_for_delivery``, messages of a share's slots."""


class SlotDelivery(QueueDelivery):
    """Consumers of a queue with slots: served from all slots, or from their shares."""

    __slots__ = ("_shares", "_slots")

    def __init__(self, source: SlotSource, exclusive: bool = True) -> None:
        super().__init__(source, exclusive)
        self._slots = source
        self._shares: dict[Consumer, Share] = {}

    def add_to(self, consumer: Consumer, share: Share) -> None:
        """Serve a consumer from a share of the slots from now on."""
        self._shares[consumer] = share
        self.add(consumer)

    def remove(self, consumer: Consumer) -> bool:
        self._shares.pop(consumer, None)
        return super().remove(consumer)

    def cancel_all(self) -> None:
        self._shares.clear()
        super().cancel_all()

    def dispatch(self) -> bool:
        if not self._shares:
            return super().dispatch()
        left = STEP
        for consumer in list(self._rings.get(0, ())):
            share = self._shares[consumer]
            while share:
                capacity = consumer.capacity()
                if capacity <= 0:
                    self._leave_ring(consumer)
                    consumer.passed_over()
                    break
                if left <= 0:
                    # The next step begins with the other consumers.
                    self._rings[0].move_to_end(consumer)
                    return True
                taken = self._slots.take_from(share, min(capacity, CHUNK))
                if not taken:
                    break
                left -= len(taken) + (body_octets(taken) >> 10)
                consumer.deliver(taken)
        return False
