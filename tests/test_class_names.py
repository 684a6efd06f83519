"""Class names are unique in the tree, for tracebacks and searches."""

import ast
from collections import defaultdict
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src" / "jumpmq"
TREES = {path.relative_to(SOURCES).as_posix(): ast.parse(path.read_text()) for path in sorted(SOURCES.rglob("*.py"))}


def classes() -> dict[str, list[str]]:
    """Files by class name."""
    places = defaultdict(list)
    for place, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(place)
    return places


def imported_aliases() -> dict[str, set[str]]:
    """Definitions of type aliases imported by other modules, such as ``ReplicaId = str``, by name."""
    imported = {
        (node.module, one.name)
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for one in node.names
    }
    definitions = defaultdict(set)
    for place, tree in TREES.items():
        module = "jumpmq." + place.removesuffix(".py").replace("/", ".")
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.Subscript | ast.BinOp):
                for name in (one.id for one in node.targets if isinstance(one, ast.Name)):
                    if name[0].isupper() and name.upper() != name and (module, name) in imported:
                        definitions[name].add(ast.unparse(node.value))
    return definitions


def test_no_two_classes_have_the_same_name() -> None:
    places = classes()
    assert len(places) > 1000, "the sources were found"
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_alias_of_a_type_has_the_name_of_a_class_or_of_another_alias() -> None:
    places, aliases = classes(), imported_aliases()
    assert aliases["ReplicaId"] == {"str"}, "aliases were found"
    meanings = {name: [*found, *places[name]] for name, found in aliases.items()}
    assert {name: found for name, found in meanings.items() if len(found) > 1} == {}
