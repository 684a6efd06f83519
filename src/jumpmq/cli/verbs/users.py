"""Users, passwords and tags."""

from __future__ import annotations

import base64
import getpass
import hashlib
import os
import sys
from typing import Annotated, Any
from urllib.parse import quote, urlsplit, urlunsplit

import typer

from jumpmq.cli.errors import CommandError, NoUser
from jumpmq.cli.formatters import Atoms
from jumpmq.cli.session import Session
from jumpmq.management import ManagementClient, Refusal

Name = Annotated[str, typer.Argument(metavar="USERNAME", help="name of the user")]
Password = Annotated[str | None, typer.Argument(help="password; by default read from standard input; '' for no login")]
Tags = Annotated[
    list[str] | None, typer.Argument(metavar="TAG", help="tags such as administrator, monitoring, management")
]


def list_users(session: Session) -> None:
    """Lists users and tags."""
    session.inform("Listing users ...")
    session.table(["user", "tags"], [[user["name"], _tags(user)] for user in session.api.get("users")])


def add_user(session: Session, username: Name, password: Password = None) -> None:
    """Adds a user, without permissions in any virtual host."""
    session.inform(f'Adding user "{username}" ...')
    secret = _read_password(session) if password is None else password
    if session.api.find("users", username) is not None:
        raise CommandError(f'User "{username}" already exists', os.EX_SOFTWARE)
    _put(session, username, _credentials(secret), [])
    session.inform(
        "Done. Don't forget to grant the user permissions to some virtual hosts! "
        "See 'jumpmqctl set_permissions --help' to learn more."
    )


def delete_user(session: Session, username: Name) -> None:
    """Deletes a user with all permissions; succeeds if the user does not exist."""
    session.inform(f'Deleting user "{username}" ...')
    try:
        session.api.delete("users", username)
    except Refusal as refusal:
        if refusal.code != 404:
            raise


def change_password(session: Session, username: Name, password: Password = None) -> None:
    """Changes a user's password."""
    session.inform(f'Changing password for user "{username}" ...')
    secret = _read_password(session) if password is None else password
    _put(session, username, _credentials(secret), _tags(_find(session, username)))


def hash_password(session: Session, password: Password = None) -> None:
    """Shows the hash of a password (salted SHA-256), for a definitions file, without a broker."""
    secret = _read_password(session) if password is None else password
    salt = os.urandom(4)
    session.say(base64.b64encode(salt + hashlib.sha256(salt + secret.encode()).digest()).decode())


def clear_password(session: Session, username: Name) -> None:
    """Clears a user's password; the user can then no longer log in with a password."""
    session.inform(f'Clearing password for user "{username}" ...')
    user = session.api.find("users", username)
    if user is None:
        raise CommandError(f'{{:no_such_user, "{username}"}}')
    _put(session, username, _credentials(""), _tags(user))


def authenticate_user(session: Session, username: Name, password: Password = None) -> None:
    """Verifies a user's password."""
    session.inform(f'Authenticating user "{username}" ...')
    secret = _read_password(session) if password is None else password
    url = urlsplit(session.url)
    place = url.netloc.rpartition("@")[2]
    asking = f"{quote(username, safe='')}:{quote(secret, safe='')}@{place}"
    try:
        ManagementClient(urlunsplit(url._replace(netloc=asking)), session.timeout, session.tls).get("whoami")
    except Refusal as refusal:
        if refusal.reason == "Not management user":  # the password is right
            session.say("Success")
            return
        if refusal.code == 401:
            reason = f"failed to authenticate user \"{username}\"\nuser '{username}' - invalid credentials"
            raise CommandError(f"Error: {reason}", os.EX_DATAERR) from None
        raise
    session.say("Success")


def set_user_tags(session: Session, username: Name, tags: Tags = None) -> None:
    """Replaces a user's tags."""
    session.inform(f'Setting tags for user "{username}" to [{", ".join(tags or [])}] ...')
    user = _find(session, username)
    _put(session, username, {name: user[name] for name in ("password_hash", "hashing_algorithm")}, tags or [])


def _find(session: Session, name: str) -> dict[str, Any]:
    user: dict[str, Any] | None = session.api.find("users", name)
    if user is None:
        raise NoUser(name)
    return user


def _put(session: Session, name: str, credentials: dict[str, str], tags: list[str]) -> None:
    session.api.put("users", name, body={**credentials, "tags": ",".join(tags)})


def _credentials(password: str) -> dict[str, str]:
    return {"password": password} if password else {"password_hash": ""}


def _tags(user: dict[str, Any]) -> Atoms:
    """Return a user's tags; brokers before RabbitMQ 3.9 separate tags by commas."""
    tags = user["tags"]
    return Atoms(tags.split(",") if isinstance(tags, str) else tags)


def _read_password(session: Session) -> str:
    if sys.stdin.isatty():
        return getpass.getpass()
    session.inform("Password: ")
    line = sys.stdin.readline()
    if not line:
        raise CommandError("Password is not provided via argument or stdin", os.EX_DATAERR)
    return line.rstrip("\r\n")


VERBS = (
    list_users,
    add_user,
    delete_user,
    authenticate_user,
    change_password,
    hash_password,
    clear_password,
    set_user_tags,
)
