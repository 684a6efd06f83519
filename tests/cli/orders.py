"""A durable queue `orders`: filled with persistent messages, and drained."""

import pika


def publish(amqp_url: str, count: int) -> None:
    """Declare the durable queue `orders`, and publish persistent messages with confirms."""
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
    channel = connection.channel()
    channel.queue_declare("orders", durable=True)
    channel.confirm_delivery()
    for number in range(count):
        channel.basic_publish("", "orders", str(number), pika.BasicProperties(delivery_mode=2))
    connection.close()


def bodies(amqp_url: str) -> list[bytes]:
    """The bodies of the queue `orders`, in order."""
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
    channel = connection.channel()
    found: list[bytes] = []
    while (body := channel.basic_get("orders", auto_ack=True)[2]) is not None:
        found.append(body)
    connection.close()
    return found
