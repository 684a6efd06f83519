#!/usr/bin/env python3
"""Spread messages over four queues by their routing keys: the same key always goes to the same queue."""

from spreading import Message, spread


def message(key: str) -> Message:
    return key, None


if __name__ == "__main__":
    spread(__doc__, "e", {}, message)
