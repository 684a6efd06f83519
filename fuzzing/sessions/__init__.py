"""The same random sessions on RabbitMQ and JumpMQ, with compared outcomes.

A *session* is a sequence of steps. A step is an AMQP method (a publish with its message) on a channel of one of up to
three connections, or an operator's request to the management API. `machine` generates sessions, from the values in
`arguments` and `http_requests`; `pair` takes a step on both brokers, waits for all effects, and compares; `side` is a
broker's part of a session, `client` a connection; `differences` are the differences named in docs/differences.md.
"""
