"""Permissions of users: `set_permissions`, `clear_permissions`, `list_permissions`, `list_user_permissions`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from jumpmq.cli.errors import CommandError
from jumpmq.cli.session import Session
from jumpmq.cli.verbs.users import Name
from jumpmq.management import Refusal

KINDS = ["configure", "write", "read"]


def _pattern(purpose: str) -> typer.models.ArgumentInfo:
    found: typer.models.ArgumentInfo = typer.Argument(help=f"regular expression of names the user may {purpose}")
    return found


def set_permissions(
    session: Session,
    username: Name,
    configure: Annotated[str, _pattern("declare and delete")],
    write: Annotated[str, _pattern("publish and bind to")],
    read: Annotated[str, _pattern("consume from, get from and purge")],
) -> None:
    """Sets a user's permissions in a virtual host."""
    session.inform(f'Setting permissions for user "{username}" in vhost "{session.vhost}" ...')
    check_exist(session, username)
    body = {"configure": configure, "write": write, "read": read}
    session.api.put("permissions", session.vhost, username, body=body)


def set_permissions_globally(
    session: Session,
    username: Name,
    configure: Annotated[str, _pattern("declare and delete")],
    write: Annotated[str, _pattern("publish and bind to")],
    read: Annotated[str, _pattern("consume from, get from and purge")],
) -> None:
    """Sets a user's permissions in all existing virtual hosts."""
    session.inform(f'Setting permissions for user "{username}" in all virtual hosts ...')
    if session.api.find("users", username) is None:
        raise CommandError(f"User {username} does not exist", os.EX_NOUSER)
    body = {"configure": configure, "write": write, "read": read}
    for vhost in session.api.get("vhosts"):
        session.api.put("permissions", vhost["name"], username, body=body)


def clear_permissions(session: Session, username: Name) -> None:
    """Removes a user's permissions in a virtual host."""
    session.inform(f'Clearing permissions for user "{username}" in vhost "{session.vhost}" ...')
    try:
        session.api.delete("permissions", session.vhost, username)
    except Refusal as refusal:
        if refusal.code not in (400, 404):
            raise
        session.check_vhost()  # as rabbitmqctl: missing permissions, or a missing user, are no failure


def list_permissions(session: Session) -> None:
    """Lists the permissions in a virtual host."""
    session.inform(f'Listing permissions for vhost "{session.vhost}" ...')
    session.check_vhost()
    granted = session.api.get("vhosts", session.vhost, "permissions")
    session.table(["user", *KINDS], [[one[name] for name in ("user", *KINDS)] for one in granted])


def list_user_permissions(session: Session, username: Name) -> None:
    """Lists a user's permissions in all virtual hosts."""
    session.inform(f'Listing permissions for user "{username}" ...')
    granted = session.api.find("users", username, "permissions")
    if granted is None:
        raise CommandError(f'{{:no_such_user, "{username}"}}')
    session.table(["vhost", *KINDS], [[one[name] for name in ("vhost", *KINDS)] for one in granted])


def check_exist(session: Session, username: str) -> None:
    """
    Raises: CommandError: the user or the session's virtual host does not exist.
    """
    if session.api.find("users", username) is None:
        raise CommandError(f"User {username} does not exist", os.EX_NOUSER)
    if session.api.find("vhosts", session.vhost) is None:
        raise CommandError(f"Virtual host {session.vhost} does not exist")


VERBS = (set_permissions, set_permissions_globally, clear_permissions, list_permissions, list_user_permissions)
