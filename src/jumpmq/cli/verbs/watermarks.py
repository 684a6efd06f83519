"""`set_vm_memory_high_watermark`, `set_disk_free_limit`: limits that block publishers, until the broker stops."""

from __future__ import annotations

import os
import re
from typing import Annotated

import typer

from jumpmq.cli.errors import UsageError
from jumpmq.cli.session import Session
from jumpmq.management import Refusal

FRACTION = re.compile(r"[0-9]+(\.[0-9]*)?")


def set_vm_memory_high_watermark(
    session: Session,
    threshold: Annotated[str, typer.Argument(metavar="FRACTION | absolute VALUE", help="a share of all memory")],
    value: Annotated[str | None, typer.Argument(hidden=True)] = None,
) -> None:
    """Sets the memory limit for messages, above which publishers are blocked."""
    if threshold == "absolute":
        limit = _given(value)
        meant = f"{limit} bytes"
    else:
        limit = meant = _fraction(threshold, value)
    _set(session, "memory_limit", limit, f"Setting memory threshold on {{node}} to {meant} ...")


def set_disk_free_limit(
    session: Session,
    limit: Annotated[str, typer.Argument(metavar="LIMIT | mem_relative FRACTION", help="a size such as 50MB")],
    fraction: Annotated[str | None, typer.Argument(hidden=True)] = None,
) -> None:
    """Sets the free disk space below which publishers are blocked."""
    if limit == "mem_relative":
        share = _given(fraction)
        if not FRACTION.fullmatch(share):
            raise UsageError("Bad argument.", os.EX_DATAERR)
        _set(session, "disk_free_limit", f"mem_relative {share}", f"Setting disk free limit on {{node}} to {share} "
             "times the total RAM ...")  # fmt: skip
        return
    if fraction is not None:
        raise UsageError("too many arguments.")
    _set(session, "disk_free_limit", limit, f"Setting disk free limit on {{node}} to {limit} bytes ...")


def _given(value: str | None) -> str:
    if value is None:
        raise UsageError("not enough arguments.")
    return value


def _fraction(text: str, further: str | None) -> str:
    if further is not None:
        raise UsageError("too many arguments.")
    if not FRACTION.fullmatch(text):
        raise UsageError("Bad argument.", os.EX_DATAERR)
    if float(text) > 1:
        raise UsageError("Bad argument: The threshold should be a fraction between 0.0 and 1.0", os.EX_DATAERR)
    return str(float(text))


def _set(session: Session, name: str, limit: str, announcement: str) -> None:
    node = session.node_name
    session.inform(announcement.format(node=node))
    try:
        session.api.put("nodes", node, "limits", body={name: limit})
    except Refusal as refusal:
        if refusal.code == 400:
            raise UsageError(f"Bad argument: {refusal.reason}", os.EX_DATAERR) from None
        raise


VERBS = (set_vm_memory_high_watermark, set_disk_free_limit)
