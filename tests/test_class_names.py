"""One class, one name: a name that is found in a traceback or searched for stands for a single class of the tree."""

import ast
from collections import defaultdict
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src" / "jumpmq"


def test_no_two_classes_have_the_same_name() -> None:
    places = defaultdict(list)
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path.relative_to(SOURCES).as_posix())
    assert len(places) > 1000, "the sources were found"
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
