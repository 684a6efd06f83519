"""RabbitMQ as a source and a sink, over AMQP: for whoever has one, and for the way from it to JumpMQ."""
