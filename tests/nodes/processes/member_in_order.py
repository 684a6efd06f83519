"""A member of a consumer group that records handled messages; see ``test_order_of_a_cluster``.

The member requeues every fifth message of a key once, and with ``--stop`` stops itself before recording its
tenth message.
"""

import argparse
import os
import signal
import sqlite3
from typing import Any

import pika

from jumpmq.ordering import Delivery, StaleOwner

TABLES = """
CREATE TABLE IF NOT EXISTS accounts (account TEXT PRIMARY KEY, epoch INTEGER NOT NULL, last INTEGER DEFAULT 0);
CREATE TABLE IF NOT EXISTS deliveries (
    key TEXT, message TEXT, queue TEXT, slot INTEGER, epoch INTEGER, number INTEGER, time REAL, consumer INTEGER);
CREATE TABLE IF NOT EXISTS happened (what TEXT, process INTEGER);"""
CLAIM = """
INSERT INTO accounts (account, epoch) VALUES (:key, :epoch)
ON CONFLICT (account) DO UPDATE SET epoch = excluded.epoch WHERE accounts.epoch <= excluded.epoch"""
NEW = "UPDATE accounts SET last = :number WHERE account = :key AND last < :number"
RECORD = "INSERT INTO deliveries VALUES (:key, :message, :queue, :slot, :epoch, :number, :time, :consumer)"
HAPPENED = "INSERT INTO happened VALUES (?, ?)"


class Member:
    """Handles each message in a transaction."""

    def __init__(self, database: str, stop_at: int) -> None:
        self._database = sqlite3.connect(database, timeout=60)
        self._left = stop_at  # number of messages until the member stops itself

    def happened(self, what: str) -> None:
        """Record an event of this member."""
        with self._database:
            self._database.execute(HAPPENED, (what, os.getpid()))

    def on_message(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        delivery, number = Delivery.of(properties, method), int(body)
        if number % 5 == 0 and not properties.headers.get("x-delivery-count"):
            channel.basic_nack(method.delivery_tag)
            self.happened("returned")
            return
        self._left -= 1
        if self._left == 0:
            self.happened("stopped")
            os.kill(os.getpid(), signal.SIGSTOP)
        try:
            with self._database as database:
                claimed = database.execute(CLAIM, {"key": delivery.key, "epoch": delivery.epoch})
                delivery.require_owner(claimed.rowcount)
                if database.execute(NEW, {"key": delivery.key, "number": number}).rowcount:
                    database.execute(RECORD, delivery.record(number, consumer=os.getpid()))
        except StaleOwner:
            self.happened("refused")
        channel.basic_ack(method.delivery_tag)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("database")
    parser.add_argument("--stop", action="store_true")
    arguments = parser.parse_args()
    channel = pika.BlockingConnection(pika.URLParameters(arguments.url)).channel()
    channel.basic_qos(prefetch_count=10)
    member = Member(arguments.database, 10 if arguments.stop else 0)
    group = {"x-consumer-group": "g", "x-rebalance-delay": 200, "x-handover-timeout": 500}
    channel.basic_consume("orders", member.on_message, arguments=group)
    channel.start_consuming()


if __name__ == "__main__":
    main()
