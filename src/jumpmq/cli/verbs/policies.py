"""`list_policies`, `set_policy`, `clear_policy`, and the verbs for operator policies."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from jumpmq.cli.errors import CommandError, NoVirtualHost
from jumpmq.cli.session import Session
from jumpmq.cli.verbs.parameters import clear, from_json
from jumpmq.management import Refusal

COLUMNS = ["vhost", "name", "pattern", "apply-to", "definition", "priority"]

Name = Annotated[str, typer.Argument(help="name of the policy")]
Pattern = Annotated[str, typer.Argument(help="regular expression that matches names of queues and exchanges")]
Definition = Annotated[str, typer.Argument(help="keys and values of the policy: a JSON object")]
Priority = Annotated[int, typer.Option("--priority", help="the matching policy of the highest priority is in force")]
ApplyTo = Annotated[
    str,
    typer.Option(
        "--apply-to", metavar="queues|classic_queues|quorum_queues|streams|exchanges|all", help="kind of objects"
    ),
]


def list_policies(session: Session) -> None:
    """Lists the policies of a virtual host."""
    session.inform(f'Listing policies for vhost "{session.vhost}" ...')
    _list(session, "policies")


def set_policy(
    session: Session,
    name: Name,
    pattern: Pattern,
    definition: Definition,
    priority: Priority = 0,
    apply_to: ApplyTo = "all",
) -> None:
    """Sets or replaces a policy."""
    session.inform(
        f'Setting policy "{name}" for pattern "{pattern}" to "{definition}" with priority "{priority}" '
        f'for vhost "{session.vhost}" ...'
    )
    _set(session, "policies", name, pattern, definition, priority, apply_to)


def clear_policy(session: Session, name: Name) -> None:
    """Clears a policy."""
    session.inform(f'Clearing policy "{name}" on vhost "{session.vhost}" ...')
    clear(session, "policies", session.vhost, name)


def list_operator_policies(session: Session) -> None:
    """Lists the operator policies of a virtual host."""
    session.inform(f'Listing operator policy overrides for vhost "{session.vhost}" ...')
    _list(session, "operator-policies")


def set_operator_policy(
    session: Session,
    name: Name,
    pattern: Pattern,
    definition: Definition,
    priority: Priority = 0,
    apply_to: ApplyTo = "all",
) -> None:
    """Sets or replaces an operator policy, which limits users' policies and arguments."""
    session.inform(
        f'Setting operator policy override "{name}" for pattern "{pattern}" to "{definition}" '
        f'with priority "{priority}" for vhost "{session.vhost}" ...'
    )
    _set(session, "operator-policies", name, pattern, definition, priority, apply_to)


def clear_operator_policy(session: Session, name: Name) -> None:
    """Clears an operator policy."""
    session.inform(f'Clearing operator policy "{name}" on vhost "{session.vhost}" ...')
    clear(session, "operator-policies", session.vhost, name)


def _list(session: Session, kind: str) -> None:
    session.table(COLUMNS, [[_shown(policy[name]) for name in COLUMNS] for policy in session.in_vhost(kind)])


def _shown(value: Any) -> Any:
    """Format a policy's property as rabbitmqctl does: the definition as JSON in all output modes."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True) if isinstance(value, dict) else value


def _set(session: Session, kind: str, name: str, pattern: str, definition: str, priority: int, apply_to: str) -> None:
    parsed = from_json(definition)
    if not isinstance(parsed, dict):
        raise CommandError(f"the definition must be a JSON object, not {definition}")
    body = {"pattern": pattern, "definition": parsed, "priority": priority, "apply-to": apply_to}
    try:
        session.api.put(kind, session.vhost, name, body=body)
    except Refusal as refusal:
        if refusal.code == 404:
            raise NoVirtualHost(session.vhost) from None
        raise


VERBS = (
    list_policies,
    set_policy,
    clear_policy,
    list_operator_policies,
    set_operator_policy,
    clear_operator_policy,
)
