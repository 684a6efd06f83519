#!/usr/bin/env python3
"""Balances in PostgreSQL that refuse the late write of a stopped group member, after the accounts got a new owner.

As owner_epoch_sqlite.py, with aio-pika and psycopg. Queue and group are shared with OwnerEpoch.java.
"""

import argparse
import asyncio
import os

import aio_pika
import psycopg

from jumpmq.ordering import Delivery, StaleOwner

TABLE = """
CREATE TABLE IF NOT EXISTS balances (
    account text PRIMARY KEY, balance bigint DEFAULT 0, last bigint DEFAULT 0, epoch bigint NOT NULL
)"""
CLAIM = """
INSERT INTO balances (account, epoch) VALUES (%(account)s, %(epoch)s)
ON CONFLICT (account) DO UPDATE SET epoch = excluded.epoch WHERE balances.epoch <= excluded.epoch"""
BOOK = """
UPDATE balances SET balance = balance + %(amount)s, last = %(number)s
WHERE account = %(account)s AND last < %(number)s"""
"""Updates nothing if the message was booked before: delivery is at least once."""


async def book(database: psycopg.AsyncConnection, delivery: Delivery, amount: int) -> None:
    """Add an amount to an account, as the account's owner only."""
    async with database.transaction():
        claimed = await database.execute(CLAIM, {"account": delivery.key, "epoch": delivery.epoch})
        delivery.require_owner(claimed.rowcount)
        number = int(delivery.message)
        await database.execute(BOOK, {"account": delivery.key, "amount": amount, "number": number})


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="amqp://guest:guest@127.0.0.1:5672/%2F")
    parser.add_argument("--database", default="postgresql:///balances")
    parser.add_argument("--publish", type=int, default=0, metavar="N", help="first publish N messages of 20 accounts")
    parser.add_argument("--work", type=float, default=0.0, metavar="SECONDS", help="what a message takes")
    parser.add_argument("--idle", type=float, metavar="SECONDS", help="stop after so many seconds without a message")
    arguments = parser.parse_args()

    database = await psycopg.AsyncConnection.connect(arguments.database, autocommit=True)
    await database.execute(TABLE)
    connection = await aio_pika.connect(arguments.url)
    channel = await connection.channel()
    in_order = {"x-slots": 16, "x-in-flight-per-slot": 1}
    queue = await channel.declare_queue("bookings", durable=True, arguments=in_order)
    exchange = await channel.get_exchange("amq.topic")
    await queue.bind(exchange, "account.#")
    for number in range(arguments.publish):
        message = aio_pika.Message(b"10", message_id=str(number // 20 + 1), delivery_mode=2)
        await exchange.publish(message, f"account.{number % 20}")

    await channel.set_qos(prefetch_count=20)
    member = {"x-consumer-group": "accounts", "x-rebalance-delay": 200, "x-handover-timeout": 500}
    try:
        async with queue.iterator(arguments=member, timeout=arguments.idle) as messages:
            async for message in messages:
                delivery = Delivery.of(message)
                print(os.getpid(), "works on", delivery.key, delivery.message, flush=True)
                await asyncio.sleep(arguments.work)
                try:
                    await book(database, delivery, int(message.body))
                except StaleOwner as error:
                    print(os.getpid(), "refused", error, flush=True)
                    break  # cancelled: the member's accounts belong to another member
                print(os.getpid(), "booked", delivery.key, delivery.message, flush=True)
                await message.ack()
    except TimeoutError:
        pass  # nothing came for so long
    await connection.close()
    await database.close()


if __name__ == "__main__":
    asyncio.run(main())
