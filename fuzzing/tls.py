"""Damages the TLS input of a live broker, and verifies that other clients are unaffected.

    python -m fuzzing.tls --seconds 600

A conversation is a handshake, followed by AMQP or HTTP. Records are damaged in transit: octets changed, false lengths
and types, records left out, repeated, cut or exchanged, garbage before and between; the socket is shut or reset at any
point. After every few conversations a second client must log in with TLS at both ports, and the broker must not have
logged an error. At the end its memory must not be more than 50 MB above the value after a fifth of the time. The exit
status is 1 after a failure.
"""

from __future__ import annotations

import logging
import random
import socket
import ssl
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path

import pika
import requests

import jumpmq
from fuzzing.sockets import EVERY, Complaints, run

GROWTH = 50_000_000
LOGIN = b"AMQP\x00\x00\x09\x01"
REQUEST = b"GET /api/whoami HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\r\n"
TYPES = (20, 21, 22, 23, 24, 0, 255)
"""Types of records: change of cipher, alert, handshake, data, heartbeat, and invalid."""


def records(octets: bytes) -> list[bytes]:
    """Split octets into TLS records."""
    found = []
    while octets:
        length = 5 + int.from_bytes(octets[3:5])
        found.append(octets[:length])
        octets = octets[length:]
    return found


def damaged(octets: bytes, chance: random.Random) -> bytes:
    """Records with random damage; often intact."""
    found = records(octets)
    while found and chance.random() < 0.4:
        at = chance.randrange(len(found))
        one = bytearray(found[at] or b"\0" * 6)
        match chance.randrange(9):
            case 0 | 1:
                one[chance.randrange(len(one))] ^= 1 << chance.randrange(8)
            case 2:
                one[3:5] = struct.pack(">H", chance.choice((0, 1, len(one), 0x4000, 0x4800, 0xFFFF)))
            case 3:
                one[0] = chance.choice(TYPES)
            case 4:
                del one[chance.randrange(len(one)) :]
            case 5:
                found.insert(at, bytes(one))
            case 6:
                found.insert(at, struct.pack(">BHH", chance.choice(TYPES), 0x0303, 3) + chance.randbytes(3))
            case 7:
                found.insert(at, chance.randbytes(chance.choice((1, 5, 300, 20_000))))
            case _:
                other = chance.randrange(len(found))
                found[other], one = bytes(one), bytearray(found[other])
        found[at] = bytes(one)
    return b"".join(found)


def converse(port: int, context: ssl.SSLContext, said: bytes, chance: random.Random) -> None:
    """Hold a conversation until its end, with or without an error."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    spoilt_from, steps = chance.randrange(6), 0
    with suppress(OSError, ssl.SSLError), socket.create_connection(("127.0.0.1", port), timeout=0.25) as sock:
        shaken = False
        while steps < 12:
            steps += 1
            try:
                if not shaken:
                    client.do_handshake()
                    shaken = True
                client.write(said)
                client.read(1 << 16)
                if chance.random() < 0.2:
                    client.unwrap()
            except ssl.SSLWantReadError:
                pass
            octets = outgoing.read()
            if octets:
                sock.sendall(damaged(octets, chance) if steps > spoilt_from else octets)
            if chance.random() < 0.1:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
                return
            received = sock.recv(1 << 16)
            if not received:
                return
            incoming.write(received)


def check(broker: jumpmq.RunningBroker, complaints: Complaints) -> None:
    """Use both ports as a second client.

    Raises:
        AssertionError: a wrong result, or an error in the log.
    """
    context = ssl.create_default_context(cafile=broker.tls_ca)
    parameters = pika.URLParameters(broker.amqps_url)
    parameters.ssl_options = pika.SSLOptions(context, "localhost")
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.basic_publish("", queue, b"still here")
        _, _, body = channel.basic_get(queue, auto_ack=True)
        assert body == b"still here", f"the bystander got {body!r}"
    trusted = str(broker.tls_ca)
    answer = requests.get(f"{broker.https_url}/api/whoami", auth=("guest", "guest"), verify=trusted, timeout=10)
    assert answer.status_code == 200, f"the bystander was answered {answer.status_code}"
    assert not complaints.texts, "the broker logged an error"


def fuzz(seconds: float, seed: int) -> int:
    """Fuzz a broker for the given seconds. Return the number of conversations.

    Raises:
        AssertionError: a failure; the text has its description, seed and conversation.
    """
    complaints = Complaints()
    logging.getLogger().addHandler(complaints)
    count, before = 0, 0
    try:
        with jumpmq.running(tls=True) as broker:
            context = ssl.create_default_context(cafile=broker.tls_ca)
            began = time.monotonic()
            while (past := time.monotonic() - began) < seconds:
                for _ in range(EVERY):
                    chance = random.Random(f"{seed}/{count}")
                    amqp = chance.random() < 0.5
                    port = broker.tls_port if amqp else broker.https_port
                    converse(port, context, LOGIN if amqp else REQUEST, chance)
                    count += 1
                try:
                    check(broker, complaints)
                except Exception as error:
                    where = f"seed {seed}, conversations {count - EVERY} to {count - 1}"
                    raise AssertionError("\n".join([f"{where}: {error}", *complaints.texts])) from error
                if past > seconds / 5:
                    before = before or memory()
            assert not before or memory() - before < GROWTH, f"memory grew by {memory() - before} octets (seed {seed})"
    finally:
        logging.getLogger().removeHandler(complaints)
    return count


def memory() -> int:
    """Octets of this process, which includes the broker."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


if __name__ == "__main__":
    sys.exit(run(fuzz, (__doc__ or "").splitlines()[0]))
