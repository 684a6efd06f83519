"""Limits of users and virtual hosts: `set_user_limits`, `set_vhost_limits`, and the verbs to clear and list limits."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from jumpmq.cli.errors import CommandError
from jumpmq.cli.session import Session
from jumpmq.cli.terminal import echo
from jumpmq.cli.verbs.parameters import from_json
from jumpmq.cli.verbs.users import Name

Definition = Annotated[str, typer.Argument(help='the limits: a JSON object such as {"max-connections": 5}')]
Everywhere = Annotated[bool, typer.Option("--global", help="of all users or virtual hosts with limits")]


def set_user_limits(session: Session, username: Name, definition: Definition) -> None:
    """Sets limits of a user; further limits of the user stay.

    Limits are max-connections, max-channels, max-consumers, max-queues, max-bindings and max-publish-rate (messages a
    second). A negative number is no limit.
    """
    session.inform(f'Setting user limits to "{definition}" for user "{username}" ...')
    limits = _read(definition)
    _of_user(session, username)
    for name, value in limits.items():
        session.api.put("user-limits", username, name, body={"value": value})


def clear_user_limits(
    session: Session, username: Name, limit: Annotated[str, typer.Argument(help="name of the limit, or all")]
) -> None:
    """Clears a limit, or all limits, of a user."""
    what = "all limits" if limit == "all" else f'"{limit}" limit'
    session.inform(f'Clearing {what} for user "{username}" ...')
    limits = _of_user(session, username)
    for name in limits if limit == "all" else [limit]:
        session.api.delete("user-limits", username, name)


def list_user_limits(
    session: Session,
    user: Annotated[str, typer.Option("--user", help="name of the user")] = "guest",
    everywhere: Everywhere = False,
) -> None:
    """Lists the limits of a user, or of all users."""
    if everywhere:
        session.inform("Listing limits for all users ...")
        _table(session, "user", session.api.get("user-limits"))
    else:
        session.inform(f'Listing limits for user "{user}" ...')
        echo(_shown(_of_user(session, user)))


def set_vhost_limits(session: Session, definition: Definition) -> None:
    """Replaces the limits of a virtual host: max-connections, max-queues, max-bindings."""
    session.inform(f'Setting vhost limits to "{definition}" for vhost "{session.vhost}" ...')
    limits = _read(definition)
    session.check_vhost()
    for name, value in limits.items():
        session.api.put("vhost-limits", session.vhost, name, body={"value": value})
    for name in _of_vhost(session).keys() - limits.keys():
        session.api.delete("vhost-limits", session.vhost, name)


def clear_vhost_limits(session: Session) -> None:
    """Removes all limits of a virtual host."""
    session.inform(f'Clearing vhost "{session.vhost}" limits ...')
    session.check_vhost()
    for name in _of_vhost(session):
        session.api.delete("vhost-limits", session.vhost, name)


def list_vhost_limits(session: Session, everywhere: Everywhere = False) -> None:
    """Lists the limits of a virtual host, or of all virtual hosts."""
    if everywhere:
        session.inform("Listing limits for all vhosts ...")
        _table(session, "vhost", session.api.get("vhost-limits"))
        return
    session.inform(f'Listing limits for vhost "{session.vhost}" ...')
    session.check_vhost()
    limits = _of_vhost(session)
    echo(_shown(limits) if limits else "")


def _read(definition: str) -> dict[str, Any]:
    limits = from_json(definition)
    if not isinstance(limits, dict):
        raise CommandError(f"the limits must be a JSON object, not {definition}")
    return limits


def _of_user(session: Session, user: str) -> dict[str, int]:
    found = session.api.find("user-limits", user)
    if found is None:
        raise CommandError(f'{{:no_such_user, "{user}"}}')
    return _only(found)


def _of_vhost(session: Session) -> dict[str, int]:
    return _only(session.in_vhost("vhost-limits"))


def _only(entries: list[dict[str, Any]]) -> dict[str, int]:
    limits: dict[str, int] = entries[0]["value"] if entries else {}
    return limits


def _table(session: Session, owner: str, entries: list[dict[str, Any]]) -> None:
    session.table([owner, "limits"], [[entry[owner], _shown(entry["value"])] for entry in entries])


def _shown(limits: dict[str, int]) -> str:
    return json.dumps(limits, separators=(",", ":"), sort_keys=True)


VERBS = (
    set_user_limits,
    clear_user_limits,
    list_user_limits,
    set_vhost_limits,
    clear_vhost_limits,
    list_vhost_limits,
)
