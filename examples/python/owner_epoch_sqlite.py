#!/usr/bin/env python3
"""Balances in SQLite that refuse the late write of a stopped group member, after the accounts got a new owner.

Start the program in several terminals, one of them with --publish 100 --work 5. Stop that one with Ctrl-Z during a
message, and resume it (fg) after other members have its accounts: its write is refused.
"""

import argparse
import os
import sqlite3
import time

import pika

from jumpmq.ordering import Delivery, StaleOwner

TABLE = """
CREATE TABLE IF NOT EXISTS balances (
    account TEXT PRIMARY KEY, balance INTEGER DEFAULT 0, last INTEGER DEFAULT 0, epoch INTEGER NOT NULL
)"""
CLAIM = """
INSERT INTO balances (account, epoch) VALUES (:account, :epoch)
ON CONFLICT (account) DO UPDATE SET epoch = excluded.epoch WHERE balances.epoch <= excluded.epoch"""
BOOK = "UPDATE balances SET balance = balance + :amount, last = :number WHERE account = :account AND last < :number"
"""Updates nothing if the message was booked before: delivery is at least once."""


def book(database: sqlite3.Connection, delivery: Delivery, amount: int) -> None:
    """Add an amount to an account, as the account's owner only."""
    with database:  # one transaction
        claimed = database.execute(CLAIM, {"account": delivery.key, "epoch": delivery.epoch})
        delivery.require_owner(claimed.rowcount)
        number = int(delivery.message)
        database.execute(BOOK, {"account": delivery.key, "amount": amount, "number": number})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="amqp://guest:guest@127.0.0.1:5672/%2F")
    parser.add_argument("--database", default="balances.db")
    parser.add_argument("--publish", type=int, default=0, metavar="N", help="first publish N messages of 20 accounts")
    parser.add_argument("--work", type=float, default=0.0, metavar="SECONDS", help="what a message takes")
    parser.add_argument("--idle", type=float, metavar="SECONDS", help="stop after so many seconds without a message")
    arguments = parser.parse_args()

    database = sqlite3.connect(arguments.database)
    database.execute(TABLE)
    channel = pika.BlockingConnection(pika.URLParameters(arguments.url)).channel()
    in_order = {"x-slots": 16, "x-in-flight-per-slot": 1}
    channel.queue_declare("bookings", durable=True, arguments=in_order)
    channel.queue_bind("bookings", "amq.topic", "account.#")
    for number in range(arguments.publish):
        properties = pika.BasicProperties(message_id=str(number // 20 + 1), delivery_mode=2)
        channel.basic_publish("amq.topic", f"account.{number % 20}", b"10", properties)

    channel.basic_qos(prefetch_count=20)
    member = {"x-consumer-group": "accounts", "x-rebalance-delay": 200, "x-handover-timeout": 500}
    for method, properties, body in channel.consume("bookings", arguments=member, inactivity_timeout=arguments.idle):
        if method is None:
            break
        delivery = Delivery.of(properties, method)
        print(os.getpid(), "works on", delivery.key, delivery.message, flush=True)
        time.sleep(arguments.work)
        try:
            book(database, delivery, int(body))
        except StaleOwner as error:
            print(os.getpid(), "refused", error, flush=True)
            break  # cancelled: the member's accounts belong to another member
        print(os.getpid(), "booked", delivery.key, delivery.message, flush=True)
        channel.basic_ack(method.delivery_tag)


if __name__ == "__main__":
    main()
