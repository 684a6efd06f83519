"""Virtual hosts: `add_vhost`, `delete_vhost`. They are listed with `list_vhosts`, a listing like others."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from jumpmq.cli.errors import NoVirtualHost
from jumpmq.cli.session import Session
from jumpmq.management import Refusal

# `--vhost` is a general option, hence the longer name.
Name = Annotated[str, typer.Argument(metavar="VHOST", help="name of the virtual host")]


def add_vhost(
    session: Session,
    vhost_name: Name,
    description: Annotated[str | None, typer.Option("--description", help="what it is for")] = None,
    tags: Annotated[str | None, typer.Option("--tags", help="separated by commas")] = None,
    default_queue_type: Annotated[
        str | None, typer.Option("--default-queue-type", help="type of queues declared without one")
    ] = None,
) -> None:
    """Adds a virtual host."""
    session.inform(f'Adding vhost "{vhost_name}" ...')
    wanted: dict[str, Any] = {"description": description, "tags": tags, "default_queue_type": default_queue_type}
    session.api.put("vhosts", vhost_name, body={name: text for name, text in wanted.items() if text is not None})


def delete_vhost(session: Session, vhost_name: Name) -> None:
    """Deletes a virtual host with all that is in it."""
    session.inform(f'Deleting vhost "{vhost_name}" ...')
    try:
        session.api.delete("vhosts", vhost_name)
    except Refusal as refusal:
        if refusal.code == 404:
            raise NoVirtualHost(vhost_name) from None
        raise


VERBS = (add_vhost, delete_vhost)
