"""Redo of stream chunks: a start writes chunks of the log to the stream's files, because the files may lack them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from jumpmq.store.files import Files
from jumpmq.store.log import read_whole
from jumpmq.store.records import BLOCK, CHUNK_AT, block_is_whole, head_at
from jumpmq.store.stream_bounds import Known, StreamChunk
from jumpmq.store.stream_end import segment_path


def redo(directory: Path, known: Known, files: Files) -> list[Path]:
    """Write all of a stream's chunks in the log to the stream's files. Chunks that are damaged in the log are not
    written.

    Args:
        directory: directory of the stream.

    Returns:
        The files and directories to sync.

    Raises:
        OSError: the log cannot be read, or a file cannot be written.
    """
    pieces = [piece for piece in known.pieces if piece.segment >= known.first]  # without segments removed by retention
    if not pieces:
        return []
    directory.mkdir(parents=True, exist_ok=True)
    whole = ((piece, chunk) for piece, chunk in contents(pieces, files) if chunk is not None)
    for first, found in groupby(whole, key=lambda one: one[0].segment):
        path = segment_path(directory, first)
        file = files.open(path) if path.exists() else files.create(path)
        try:
            for piece, chunk in found:
                # Existing octets, too: after a failed sync, they may be in the system's cache only.
                files.write(file, piece.position, [chunk])
        finally:
            files.close(file)
    segments = dict.fromkeys(piece.segment for piece in pieces)
    return [directory, directory.parent, *(segment_path(directory, first) for first in segments)]


def contents(pieces: Iterable[StreamChunk], files: Files) -> Iterator[tuple[StreamChunk, bytes | None]]:
    """Yield each piece with the octets of its chunk; None for a damaged chunk.

    Raises:
        OSError: the log cannot be read.
    """
    for path, of_file in groupby(pieces, key=lambda piece: piece.log):
        log = files.open(path)
        try:
            for piece in of_file:
                octets = read_whole(log, piece.length, piece.offset)
                is_whole = len(octets) == piece.length and block_is_whole(octets, piece.salt)
                yield piece, _chunk(octets) if is_whole else None
        finally:
            files.close(log)


def _chunk(octets: bytes) -> bytes:
    return octets[BLOCK.size + CHUNK_AT.size : BLOCK.size + head_at(octets).length]


def without(lost: tuple[int, int], pieces: Iterable[StreamChunk]) -> Iterator[tuple[int, int]]:
    """Yield the parts of an offset range, as (first, end), outside of the given pieces."""
    first, end = lost
    for piece in pieces:
        if piece.end > first and piece.first < end:
            if piece.first > first:
                yield first, piece.first
            first = piece.end
    if first < end:
        yield first, end


def sync(paths: Iterable[Path], files: Files) -> None:
    """Sync files and directories; missing files are skipped.

    Raises:
        OSError: a file or directory cannot be synced.
    """
    for path in paths:
        try:
            if path.is_dir():
                files.sync_directory(path)
                continue
            file = files.open(path)
        except FileNotFoundError:
            continue
        try:
            files.sync(file)
        finally:
            files.close(file)
