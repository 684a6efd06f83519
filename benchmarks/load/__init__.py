"""Load for an AMQP 0-9-1 broker: `python -m benchmarks.load --help`."""
