"""Virtual hosts, and tracing of their messages. `list_vhosts` lists virtual hosts."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from jumpmq.cli.errors import NoVirtualHost, UsageError
from jumpmq.cli.session import Session
from jumpmq.management import Refusal

# `--vhost` is a general option, hence the longer name.
Name = Annotated[str, typer.Argument(metavar="VHOST", help="name of the virtual host")]


def add_vhost(
    session: Session,
    vhost_name: Name,
    description: Annotated[str | None, typer.Option("--description", help="purpose of the virtual host")] = None,
    tags: Annotated[str | None, typer.Option("--tags", help="tags, separated by commas")] = None,
    default_queue_type: Annotated[
        str | None, typer.Option("--default-queue-type", help="type of queues declared without a type")
    ] = None,
    home: Annotated[int | None, typer.Option("--home", min=0, help="worker for the host's clients; 0: any")] = None,
) -> None:
    """Adds a virtual host."""
    session.inform(f'Adding vhost "{vhost_name}" ...')
    session.api.put("vhosts", vhost_name, body=_given(description, tags, default_queue_type, home))


def _given(
    description: str | None, tags: str | None, default_queue_type: str | None, home: int | None
) -> dict[str, Any]:
    """Return the given values under the API's names."""
    wanted = {"description": description, "tags": tags, "default_queue_type": default_queue_type, "home": home}
    return {name: value for name, value in wanted.items() if value is not None}


def delete_vhost(session: Session, vhost_name: Name) -> None:
    """Deletes a virtual host and all contents."""
    session.inform(f'Deleting vhost "{vhost_name}" ...')
    try:
        session.api.delete("vhosts", vhost_name)
    except Refusal as refusal:
        if refusal.code == 404:
            raise NoVirtualHost(vhost_name) from None
        raise


def update_vhost_metadata(
    session: Session,
    vhost_name: Name,
    description: Annotated[str | None, typer.Option("--description", help="purpose of the virtual host")] = None,
    tags: Annotated[str | None, typer.Option("--tags", help="tags, separated by commas")] = None,
    default_queue_type: Annotated[
        str | None, typer.Option("--default-queue-type", help="type of queues declared without a type")
    ] = None,
    home: Annotated[int | None, typer.Option("--home", min=0, help="worker for the host's clients; 0: any")] = None,
) -> None:
    """Changes a virtual host's description, tags, default queue type or home; values not given stay."""
    body = _given(description, tags, default_queue_type, home)
    if not body:
        raise UsageError("give --description, --tags, --default-queue-type or --home")
    session.inform(f'Updating metadata of vhost "{vhost_name}" ...')
    if session.api.find("vhosts", vhost_name) is None:
        raise NoVirtualHost(vhost_name)
    session.api.put("vhosts", vhost_name, body=body)


def set_vhost_tags(
    session: Session, vhost_name: Name, tags: Annotated[list[str] | None, typer.Argument(metavar="TAG")] = None
) -> None:
    """Replaces a virtual host's tags."""
    session.inform(f'Setting tags for virtual host "{vhost_name}" to [{", ".join(tags or [])}] ...')
    if session.api.find("vhosts", vhost_name) is None:
        raise NoVirtualHost(vhost_name)
    session.api.put("vhosts", vhost_name, body={"tags": tags or []})


def trace_on(session: Session) -> None:
    """Copies all messages published and delivered in a virtual host to its exchange amq.rabbitmq.trace."""
    session.inform(f'Starting tracing for vhost "{session.vhost}" ...')
    _trace(session, True)
    session.say(f"Trace enabled for vhost {session.vhost}")


def trace_off(session: Session) -> None:
    """Stops copying messages to amq.rabbitmq.trace."""
    session.inform(f'Stopping tracing for vhost "{session.vhost}" ...')
    _trace(session, False)
    session.say(f"Trace disabled for vhost {session.vhost}")


def _trace(session: Session, wanted: bool) -> None:
    session.check_vhost()  # the request would create a missing virtual host
    session.api.put("vhosts", session.vhost, body={"tracing": wanted})


VERBS = (add_vhost, delete_vhost, update_vhost_metadata, set_vhost_tags, trace_on, trace_off)
