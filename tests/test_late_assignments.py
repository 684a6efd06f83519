"""An object is complete when its constructor returns: other modules do not set its functions and parts afterwards. An
object that begins to follow another one later registers there, by a method (``listen``, ``serve``).
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src" / "jumpmq"
TREES = {path.relative_to(SOURCES).as_posix(): ast.parse(path.read_text()) for path in sorted(SOURCES.rglob("*.py"))}

LAYERS = "broker/", "nodes/", "topology/", "store/"

VALUES = {"NamedTuple", "Enum", "IntEnum", "StrEnum", "IntFlag", "Exception", "TypedDict", "dataclass"}
"""Bases and decorators of classes whose objects are values, with no parts of their own."""

ALLOWED = {
    # The functions of a channel's methods (``channel/methods.py``) share the state of the channel.
    ("broker/channel/consuming.py", "reply_queue"),
    ("broker/channel/methods.py", "confirms"),
    # A consumer and its deliveries, made in the module.
    ("broker/channel/consumers.py", "consumer"),
    ("broker/channel/consuming.py", "consumer"),
    ("nodes/channels/remote_channels.py", "queue"),
    ("nodes/channels/remote_channels.py", "remote"),
    # The waits of one request, made in the module.
    ("nodes/channels/shard_choice.py", "go_on"),
    # A queue has a consumer group, and a user's connections a rate, for a time.
    ("broker/consumer_groups/live.py", "consumer_group"),
    ("broker/connection/connection.py", "shared"),
    ("broker/security/user_limits.py", "shared"),
    # Definitions of a virtual host.
    ("topology/changes/policies.py", "policies"),
    ("topology/vhost.py", "held_queue"),
    # Numbers, octets and definitions, in attributes named as a part of another class.
    ("broker/broker.py", "disk_free_limit"),
    ("broker/channel/consuming.py", "body"),
    ("nodes/channels/remote_channel.py", "body"),
    ("nodes/channels/remote_consumers.py", "body"),
    ("topology/restoring.py", "home"),
    ("topology/topology.py", "change"),
    ("store/pipeline.py", "segment"),
    ("store/reader.py", "batch"),
    ("store/staging.py", "messages"),
    # State of an application of Starlette: the place for objects shared by its endpoints.
    ("nodes/management/listener.py", "broker"),
    ("nodes/management/listener.py", "recent_log"),
}
"""Assignments of state to another object's attribute, as file and attribute."""


def _classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def _targets(node: ast.AST) -> Iterator[ast.Attribute]:
    """Attributes to which a statement assigns."""
    found: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        found = list(node.targets)
    elif isinstance(node, ast.AnnAssign):
        found = [node.target]
    while found:
        target = found.pop()
        if isinstance(target, ast.Tuple):
            found += target.elts
        elif isinstance(target, ast.Attribute):
            yield target


def _is_own(target: ast.Attribute) -> bool:
    return isinstance(target.value, ast.Name) and target.value.id == "self"


def _is_of_values(one: ast.ClassDef) -> bool:
    return bool({*re.findall(r"\w+", " ".join(map(ast.unparse, (*one.bases, *one.decorator_list))))} & VALUES)


def _types(one: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Attributes of a class, each with its annotation or, without one, with the value in the constructor."""
    for node in one.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, ast.unparse(node.annotation)
        elif isinstance(node, ast.FunctionDef):
            arguments = (*node.args.args, *node.args.kwonlyargs)
            known = {argument.arg: ast.unparse(argument.annotation or ast.Name("")) for argument in arguments}
            for statement in ast.walk(node):
                for target in filter(_is_own, _targets(statement)):
                    if isinstance(statement, ast.AnnAssign):
                        yield target.attr, ast.unparse(statement.annotation)
                    elif node.name == "__init__" and isinstance(statement, ast.Assign):
                        value = ast.unparse(statement.value)
                        yield target.attr, known.get(value, value)


OBJECTS = {one.name for tree in TREES.values() for one in _classes(tree) if not _is_of_values(one)}


def _is_part(kind: str) -> bool:
    """True for the type of a function, or of an object of ours; a container of such is state."""
    plain = kind.strip("'\"").removesuffix(" | None")
    return plain.startswith(("Callable", "lambda")) or re.split(r"\W", plain)[0] in OBJECTS or plain in OBJECTS


PARTS = {name for tree in TREES.values() for one in _classes(tree) for name, kind in _types(one) if _is_part(kind)}
"""Names of attributes with a function or an object, in any class."""


def _late_assignments(place: str) -> Iterator[str]:
    own = {name for one in _classes(TREES[place]) for name, _ in _types(one)}
    for node in ast.walk(TREES[place]):
        for target in _targets(node):
            if not _is_own(target) and target.attr in PARTS - own:
                yield target.attr


def test_no_module_sets_a_function_or_a_part_of_an_object_of_another_module() -> None:
    assert {"log", "consumer_group", "on_loss"} <= PARTS, "the attributes were found"
    found = {(place, name) for place in TREES if place.startswith(LAYERS) for name in _late_assignments(place)}
    assert sorted(found - ALLOWED) == []
    assert sorted(ALLOWED - found) == [], "these are no longer assigned"
