"""Parameters of virtual hosts and of the broker: list, set and clear."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from jumpmq.cli.errors import CommandError
from jumpmq.cli.session import Session
from jumpmq.management import Refusal

Component = Annotated[str, typer.Argument(metavar="COMPONENT", help="component, such as vhost-limits")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="name of the parameter")]
Value = Annotated[str, typer.Argument(metavar="VALUE", help="value as JSON")]


def list_parameters(session: Session) -> None:
    """Lists the parameters of a virtual host: limits and operator policies."""
    session.inform(f'Listing runtime parameters for vhost "{session.vhost}" ...')
    session.check_vhost()
    found = [one for one in session.api.get("parameters") if one["vhost"] == session.vhost]
    names = ["component", "name", "value"]
    session.table(names, [[one["component"], one["name"], _shown(one["value"])] for one in found])


def set_parameter(session: Session, component: Component, name: Name, value: Value) -> None:
    """Sets a parameter: limits of a virtual host, or an operator policy."""
    session.inform(
        f'Setting runtime parameter "{name}" for component "{component}" to "{value}" in vhost "{session.vhost}" ...'
    )
    session.check_vhost()
    session.api.put("parameters", component, session.vhost, name, body={"value": from_json(value)})


def clear_parameter(session: Session, component: Component, name: Name) -> None:
    """Clears a parameter."""
    session.inform(f'Clearing runtime parameter "{name}" for component "{component}" on vhost "{session.vhost}" ...')
    session.check_vhost()
    clear(session, "parameters", component, session.vhost, name)


def list_global_parameters(session: Session) -> None:
    """Lists the parameters of the whole broker."""
    session.inform("Listing global runtime parameters ...")
    found = session.api.get("global-parameters")
    session.table(["name", "value"], [[one["name"], _shown(one["value"])] for one in found])


def set_global_parameter(session: Session, name: Name, value: Value) -> None:
    """Sets a parameter of the whole broker: any JSON."""
    session.inform(f'Setting global runtime parameter "{name}" to "{value}" ...')
    session.api.put("global-parameters", name, body={"value": from_json(value)})


def clear_global_parameter(session: Session, name: Name) -> None:
    """Clears a parameter of the whole broker."""
    session.inform(f'Clearing global runtime parameter "{name}" ...')
    clear(session, "global-parameters", name)


def from_json(value: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        CommandError: the text is not JSON.
    """
    try:
        return json.loads(value)
    except ValueError as error:
        raise CommandError(f"Could not parse JSON document: {error}") from None


def _shown(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def clear(session: Session, *place: str) -> None:
    """Delete an API resource.

    Raises:
        CommandError: the resource does not exist.
    """
    try:
        session.api.delete(*place)
    except Refusal as refusal:
        if refusal.code == 404:
            raise CommandError("Parameter does not exist") from None
        raise


VERBS = (
    list_parameters,
    set_parameter,
    clear_parameter,
    list_global_parameters,
    set_global_parameter,
    clear_global_parameter,
)
