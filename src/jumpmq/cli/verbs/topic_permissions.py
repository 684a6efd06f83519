"""Topic permissions: `set_topic_permissions`, `clear_topic_permissions`, and the two verbs to list them."""

from __future__ import annotations

from typing import Annotated

import typer

from jumpmq.cli.errors import CommandError
from jumpmq.cli.session import Session
from jumpmq.cli.verbs.permissions import check_exist
from jumpmq.cli.verbs.users import Name
from jumpmq.management import Refusal

KINDS = ["exchange", "write", "read"]
Exchange = Annotated[str, typer.Argument(help="name of a topic exchange")]


def set_topic_permissions(
    session: Session,
    username: Name,
    exchange: Exchange,
    write: Annotated[str, typer.Argument(help="regular expression of routing keys for publishing")],
    read: Annotated[str, typer.Argument(help="regular expression of binding keys for binding")],
) -> None:
    """Sets the topics of an exchange for a user's publishes and bindings."""
    session.inform(f'Setting topic permissions on "{exchange}" for user "{username}" in vhost "{session.vhost}" ...')
    check_exist(session, username)
    body = {"exchange": exchange, "write": write, "read": read}
    session.api.put("topic-permissions", session.vhost, username, body=body)


def clear_topic_permissions(
    session: Session,
    username: Name,
    exchange: Annotated[str | None, typer.Argument(help="name of a topic exchange; by default all")] = None,
) -> None:
    """Removes a user's topic permissions in a virtual host."""
    where = f'on "{exchange}" ' if exchange is not None else ""
    session.inform(f'Clearing topic permissions {where}for user "{username}" in vhost "{session.vhost}" ...')
    place = ("topic-permissions", session.vhost, username, *([exchange] if exchange is not None else []))
    try:
        session.api.delete(*place)
    except Refusal as refusal:
        if refusal.code not in (400, 404):
            raise
        session.check_vhost()  # as rabbitmqctl: missing permissions, or a missing user, are no failure


def list_topic_permissions(session: Session) -> None:
    """Lists the topic permissions in a virtual host."""
    session.inform(f'Listing topic permissions for vhost "{session.vhost}" ...')
    session.check_vhost()
    granted = session.api.get("vhosts", session.vhost, "topic-permissions")
    session.table(["user", *KINDS], [[one[name] for name in ("user", *KINDS)] for one in granted])


def list_user_topic_permissions(session: Session, username: Name) -> None:
    """Lists a user's topic permissions in all virtual hosts."""
    session.inform(f'Listing topic permissions for user "{username}" ...')
    granted = session.api.find("users", username, "topic-permissions")
    if granted is None:
        raise CommandError(f'{{:no_such_user, "{username}"}}')
    session.table(["vhost", *KINDS], [[one[name] for name in ("vhost", *KINDS)] for one in granted])


VERBS = (set_topic_permissions, clear_topic_permissions, list_topic_permissions, list_user_topic_permissions)
