"""Binding keys of topic exchanges as a trie with one node per word: fast if few patterns begin alike.

Matching walks all nodes reachable by the words of the routing key so far. With many wildcards these can be most nodes
at every word. A walk therefore gives up after a number of nodes, and :mod:`topic_automaton` decides.
"""

from collections.abc import Iterator

from jumpmq.topology.exchanges.base import BoundDestinations, Destination

MAX_VISITS = 500
"""Maximum number of nodes visited in a walk, some 0.3 ms."""


class Node:
    """A place in the trie: destinations of the pattern that ends here, and the nodes for the next word of longer
    patterns.
    """

    __slots__ = ("bound", "children", "repeats")

    def __init__(self, repeats: bool = False) -> None:
        self.bound: BoundDestinations | None = None
        self.children: dict[bytes, Node] = {}
        self.repeats = repeats


class TopicTrie:
    """Patterns with bound destinations."""

    def __init__(self) -> None:
        self._root = Node()

    def add(self, words: list[bytes], destination: Destination) -> BoundDestinations:
        """Bind a destination; return all destinations of the pattern."""
        node = self._root
        for word in words:
            child = node.children.get(word)
            if child is None:
                child = node.children[word] = Node(word == b"#")
            node = child
        if node.bound is None:
            node.bound = BoundDestinations()
        node.bound.add(destination)
        return node.bound

    def remove(self, words: list[bytes], destination: Destination) -> BoundDestinations:
        """Remove a binding of a destination; return the pattern's remaining destinations."""
        path = [self._root]
        for word in words:
            path.append(path[-1].children[word])
        bound = path[-1].bound
        assert bound is not None, "the binding is there"
        bound.remove(destination)
        if not bound:
            path[-1].bound = None
        for parent, word, node in reversed(list(zip(path, words, path[1:], strict=False))):
            if node.bound is None and not node.children:
                del parent.children[word]
        return bound

    def match(self, words: list[bytes]) -> list[BoundDestinations] | None:
        """Return the destinations bound by matching patterns; None after too many visits."""
        visits = 0
        reached = _with_empty_matches({self._root: None})
        for word in words:
            visits += len(reached)
            if visits > MAX_VISITS:
                return None
            following: dict[Node, None] = {}
            for node in reached:
                for child in (node.children.get(word), node.children.get(b"*")):
                    if child is not None:
                        following[child] = None
                if node.repeats:
                    following[node] = None
            reached = _with_empty_matches(following)
        return [node.bound for node in reached if node.bound is not None]

    def patterns(self) -> Iterator[tuple[list[bytes], BoundDestinations]]:
        """Yield all patterns as words, with their bound destinations."""
        rest: list[tuple[Node, list[bytes]]] = [(self._root, [])]
        while rest:
            node, words = rest.pop()
            if node.bound is not None:
                yield words, node.bound
            rest += [(child, [*words, word]) for word, child in node.children.items()]


def _with_empty_matches(nodes: dict[Node, None]) -> dict[Node, None]:
    """Return the nodes, and the nodes reached from them if ``#`` matches no word."""
    found = dict(nodes)
    open_nodes = list(nodes)
    for node in open_nodes:
        child = node.children.get(b"#")
        if child is not None and child not in found:
            found[child] = None
            open_nodes.append(child)
    return found
