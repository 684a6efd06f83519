"""The same random sessions on two brokers, RabbitMQ and JumpMQ, and what came of them compared.

A *session* is a sequence of steps, each one AMQP method (a publish with its message) on a channel of one of up to three
connections, or what an operator asks of the management API meanwhile. `machine` invents sessions, from the values in
`arguments` and `http_requests`; `pair` takes each step on both brokers, waits
until it has had all its effects, and compares; `side` is one broker's part in that, `client` one of its connections;
`differences` are those that have a name in docs/differences.md.
"""
