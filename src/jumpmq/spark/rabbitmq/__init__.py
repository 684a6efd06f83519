"""RabbitMQ as source and sink, over AMQP: for existing installations, and for the migration to JumpMQ."""
