"""Filters of messages in requests: numbers, time, key, header, text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jumpmq.broker.bulk.searching import SearchCriteria
from jumpmq.http.plumbing import requested
from jumpmq.http.plumbing.errors import BadRequest
from jumpmq.http.schema.shapes import NAME, NUMBER, TEXT, Shape, one_of, whole
from jumpmq.queues import Queue
from jumpmq.topology.exchanges.hashed import PROPERTIES

WANTED = Shape(
    {
        "from": whole(requested.LAST_SEQ),
        "to": whole(requested.LAST_SEQ),
        "since": NUMBER,
        "key": NAME,
        "header": NAME,
        "property": one_of(*PROPERTIES),
        "value": TEXT,
        "text": TEXT,
    }
)
"""Shape of a filter; all conditions must hold."""


def wanted_of(queue: Queue, said: Mapping[str, Any]) -> SearchCriteria:
    """Parse a filter for a queue.

    Args:
        said: the values of a body, :data:`WANTED` and possibly others.

    Raises:
        BadRequest: the conditions contradict each other, or are incomplete.
    """
    since = said.get("since")
    if since is not None and not requested.is_seconds(since):
        raise BadRequest(f"'since' must be a number of seconds since the epoch, not {since}")
    if "header" in said and "property" in said:
        raise BadRequest("'value' belongs to one 'header' or one 'property': both are given")
    if "value" in said and "header" not in said and "property" not in said:
        raise BadRequest("'value' needs a 'header' or a 'property'")
    if "property" in said and "value" not in said:
        raise BadRequest("'property' needs a 'value'")
    first, last = said.get("from", 0), min(said.get("to", requested.LAST_SEQ), queue.next_seq - 1)
    if since is not None and (found := queue.view.seq_at(since)) is not None:
        first = max(first, found)
    return SearchCriteria(
        first,
        last,
        since,
        _octets(said, "key"),
        said.get("header"),
        said.get("value"),
        _octets(said, "text"),
        said.get("property"),
    )


def _octets(said: Mapping[str, Any], name: str) -> bytes | None:
    found: str | None = said.get(name)
    try:
        return None if found is None else found.encode()
    except UnicodeEncodeError:
        raise BadRequest(f"'{name}' is not Unicode") from None
