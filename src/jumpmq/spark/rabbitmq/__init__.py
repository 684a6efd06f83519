"""RabbitMQ as a source and a sink, over AMQP: for those who have one, and for the way from it to JumpMQ."""
