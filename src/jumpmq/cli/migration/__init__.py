"""`jumpmq migrate`: definitions and messages of a RabbitMQ, moved into a JumpMQ."""
