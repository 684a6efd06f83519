"""The setting `load_definitions`: definitions files imported at every start, as by RabbitMQ's key."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from jumpmq.amqp.errors import AMQPError
from jumpmq.broker import Broker, BrokerError
from jumpmq.broker.upkeep import slices
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.plumbing.json_body import read_object
from jumpmq.http.resources.import_definitions import NOTES, import_definitions
from jumpmq.http.resources.import_shards import Renaming
from jumpmq.topology import ChangePrincipal

log = logging.getLogger(__name__)


def loading(path: Path) -> Callable[[Broker], Awaitable[None]]:
    """Return a function that imports a definitions file, or all ``*.json`` of a directory, before the broker listens.

    The files of a directory are imported together, in the order of their names: all entries or none. Equal existing
    objects are left alone; different ones are replaced, as by an import over HTTP.
    """

    async def load(broker: Broker) -> None:
        try:
            found = await asyncio.to_thread(_read, path)
            skipped: list[str] = []
            renaming = Renaming()
            steps = import_definitions(
                broker.topology, ChangePrincipal(), found, None, skipped, unchanged_too=False, renaming=renaming
            )
            await slices.in_turns(broker, steps)
            await broker.committed()
        except OSError as error:
            raise BrokerError(f"cannot load definitions from {error.filename or path}: {error.strerror}") from None
        except (BadRequest, ValueError) as error:
            raise BrokerError(f"cannot load definitions from {path}: {error}") from None
        except AMQPError as error:
            raise BrokerError(f"cannot load definitions from {path}: {error.text}") from None
        for line in skipped:
            log.warning("definitions of %s: skipped %s", path, line)
        for note in renaming.notes:
            log.warning("definitions of %s: %s", path, note)
        log.info("definitions of %s are loaded, with %d renamed shards", path, len(renaming.queues))

    return load


def _read(path: Path) -> dict[str, Any]:
    """Read the object in a file or, of a directory, the concatenated lists of all its files.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is not a JSON object, or a directory has none.
    """
    if not path.is_dir():
        return _object(path)
    files = sorted(path.glob("*.json"))
    if not files:
        raise ValueError("the directory has no file *.json")
    merged: dict[str, Any] = {}
    for file in files:
        for key, value in _object(file).items():
            if key in NOTES:
                continue
            if key in merged and not (isinstance(value, list) and isinstance(merged[key], list)):
                raise ValueError(f"{file.name}: {key} is also in another file, and is not a list")
            merged[key] = [*merged[key], *value] if key in merged else value
    return merged


def _object(file: Path) -> dict[str, Any]:
    steps = read_object(file.read_bytes())
    try:
        while True:
            next(steps)
    except StopIteration as end:
        found: dict[str, Any] = end.value
        return found
    except ValueError as error:
        raise ValueError(f"{file.name} is not a definitions file: {error}") from None
