"""Fuzzes the reading of Arrow streams, which compiled code reads without checking offsets.

    python -m fuzzing.arrow --count 20000

A stream ends at a page without read access, in a separate process: reading beyond the stream kills the process, as
under AddressSanitizer. The octets before the stream are a marker that must not appear in any message. Failures are: a
process ended by a signal, an error other than :class:`BadRequest`, the marker. On a failure the exit status is 1, and
the seed of the stream is printed.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import multiprocessing
import multiprocessing.queues
import random
import struct
import sys
from collections.abc import Callable

import pyarrow as pa

from jumpmq.http.plumbing.arrow_messages import messages_of, read_batches
from jumpmq.http.plumbing.errors import BadRequest

PAGE = mmap.PAGESIZE
MARK = b"<no part of the stream>"
AT_ONCE = 500
"""Streams per report of progress to the parent process."""

INTERESTING = (0, 1, -1, 7, 8, 127, 255, 256, 65535, 1 << 20, (1 << 31) - 1, -(1 << 31), 1 << 40, (1 << 63) - 1)


def sample(rng: random.Random) -> bytes:
    """Return a well-formed stream, also with unsupported types or compression."""
    rows = rng.choice((0, 1, 2, 3, 17, 100))
    text = [rng.choice(("", "q", "amq.topic", None, "ä" * 9)) for _ in range(rows)]
    octets = [rng.choice((b"", b"k", b"\x80\x00", None, rng.randbytes(rng.randrange(60)))) for _ in range(rows)]
    columns: dict[str, pa.Array] = {"body": pa.array([value or b"" for value in octets], pa.binary())}
    for name in rng.sample(("routing_key", "properties", "exchange", "queue"), rng.randrange(5)):
        is_text = name in ("exchange", "queue")
        columns[name] = pa.array(text, pa.string()) if is_text else pa.array(octets, pa.binary())
    if rng.random() < 0.1:
        others: tuple[Callable[[], pa.Array], ...] = (
            lambda: pa.array(text, pa.string()).dictionary_encode(),
            lambda: pa.array([text] * rows, pa.list_(pa.string())),
            lambda: pa.array(text, pa.string_view()),
            lambda: pa.array(range(rows), pa.int64()),
            lambda: pa.array(octets, pa.large_binary()),
        )
        columns[rng.choice(("queue", "other"))] = rng.choice(others)()
    batch = pa.record_batch(columns)
    out = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=rng.choice((None, None, None, None, "zstd", "lz4")))
    with pa.ipc.new_stream(out, batch.schema, options=options) as writer:
        for _ in range(rng.randrange(1, 4)):
            writer.write_batch(batch)
    found: bytes = out.getvalue().to_pybytes()
    return found


def damaged(octets: bytes, rng: random.Random) -> bytes:
    """The stream with a few changes: bits, integers at aligned offsets, pieces cut out, doubled or moved."""
    found = bytearray(octets)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        place = rng.randrange(len(found)) if found else 0
        match rng.randrange(8):
            case 0 if found:
                found[place] ^= 1 << rng.randrange(8)
            case 1 if found:
                found[place] = rng.randrange(256)
            case 2 | 3 | 4:
                form, size = rng.choice((("<i", 4), ("<q", 8), ("<H", 2)))
                place -= place % size
                if place + size <= len(found):
                    old = struct.unpack_from(form, found, place)[0]
                    value = rng.choice((*INTERESTING, old + 1, old - 1, old + 8, old * 2, rng.randrange(len(found))))
                    found[place : place + size] = (value % (1 << 8 * size)).to_bytes(size, "little")
            case 5:
                del found[place : place + rng.choice((1, 4, 8, 64, len(found)))]
            case 6:
                found[place:place] = found[place : place + rng.choice((1, 4, 8, 64))]
            case _:
                found[place:place] = rng.randbytes(rng.choice((1, 4, 8)))
    return bytes(found)


class GuardedOctets:
    """Memory before a page without read access."""

    def __init__(self, pages: int) -> None:
        self._size = pages * PAGE
        self._map = mmap.mmap(-1, self._size + PAGE)
        self._whole = (ctypes.c_char * (self._size + PAGE)).from_buffer(self._map)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(ctypes.addressof(self._whole) + self._size), PAGE, 0):
            raise OSError(ctypes.get_errno(), "mprotect")

    def holding(self, octets: bytes) -> memoryview:
        """Return the octets, ending at most 7 octets before the guarded page; markers fill the memory before them."""
        room = -(-len(octets) // 8) * 8
        start = self._size - room
        marks = (MARK * (start // len(MARK) + 1))[:start]
        self._map.seek(0)
        self._map.write(marks + octets)
        return memoryview(self._map)[start : start + len(octets)]


def read(octets: bytes, guarded: GuardedOctets) -> str | None:
    """Read a stream. Return the failure, or None."""
    try:
        runs = list(messages_of(read_batches(guarded.holding(octets)), "", "q", persistent=True))
    except BadRequest:
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    for queue, message in ((run.queue, message) for run in runs for message in run.messages):
        held = b"\n".join((message.body, message.routing_key, message.properties, (queue or "").encode()))
        if MARK in held + message.exchange.encode():
            return "a message holds what is no part of the stream"
    return None


def read_many(seed: int, count: int) -> list[str]:
    """Read ``count`` streams. Return the failures."""
    guarded = GuardedOctets(64)
    found = []
    for number in range(seed, seed + count):
        rng = random.Random(number)
        octets = sample(rng)
        if rng.random() < 0.98:
            octets = damaged(octets, rng)
        if len(octets) <= 64 * PAGE and (wrong := read(octets, guarded)) is not None:
            found.append(f"{number}: {wrong}")
    return found


def fuzz(seed: int, count: int) -> list[str]:
    """Read ``count`` streams in separate processes. Return the failures with the seeds of the streams."""
    context = multiprocessing.get_context("spawn")
    results: multiprocessing.queues.Queue[tuple[int, list[str]]] = context.Queue()
    process = context.Process(target=_tell, args=(results, seed, count))
    process.start()
    process.join()
    found: list[str] = []
    done = seed
    while not results.empty():
        done, wrong = results.get()
        found += wrong
    if process.exitcode:
        found.append(f"{done} to {done + AT_ONCE}: the process ended with status {process.exitcode}")
    return found


def _tell(results: multiprocessing.queues.Queue[tuple[int, list[str]]], seed: int, count: int) -> None:
    for first in range(seed, seed + count, AT_ONCE):
        found = read_many(first, min(AT_ONCE, seed + count - first))
        results.put((first + AT_ONCE, found))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=20_000, help="streams to read")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments = parser.parse_args()
    found = fuzz(arguments.seed, arguments.count)
    print(f"{arguments.count} streams from seed {arguments.seed} on: {len(found)} found")
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
