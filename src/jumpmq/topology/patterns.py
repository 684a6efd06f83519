"""Untrusted regular expressions: policies, permissions, name filters.

The expressions are RE2's: matching takes time linear in the product of the name's length and the expression's, with
repetitions written out. Features that RE2 lacks (look-around, back-references) are refused, and so are expressions that
are too long, or too long with repetitions written out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

MAX_OCTETS = 4096
"""Maximum length of an expression in octets. Matching takes at most the product of both lengths."""

MAX_REPEATED = 600
"""Maximum number of repeated or optional characters and classes, with repetitions written out. Matching so many
against a name of 255 octets takes at most 40 ms. A class counts 2, a Unicode class 200, by the number of
instructions.
"""

_TOKEN = re.compile(
    r"""(?P<quoted>\\Q(?:(?!\\E).)*(?:\\E)?)
      | (?P<property>\\[pP](?:\{[^}]*\}|.)?)
      | (?P<class>\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]|\\[dDwWsS]|\.)
      | (?P<escape>\\(?:x\{[^}]*\}|x..|[0-7]{1,3}|.))
      | (?P<flags>\(\?[a-zA-Z-]+\))
      | (?P<open>\((?:\?(?:P?<[^>]*>|[a-zA-Z-]*:))?)
      | (?P<close>\))
      | (?P<times>\{(?P<least>\d+)(?P<comma>,(?P<most>\d*))?\})
      | (?P<repeat>[*+?])
      | (?P<other>.)""",
    re.DOTALL | re.VERBOSE,
)

ANYTHING = ".*"
"""The most frequent permission, which needs no RE2."""

_MEMORY = 1 << 20
"""Maximum memory of a compiled expression, in octets; larger ones are refused, or match more slowly."""


class InvalidPattern(ValueError):
    """An expression is refused; the text gives the reason."""


class Pattern:
    """A regular expression.

    Raises:
        InvalidPattern: the expression is malformed, too long, or not RE2's.
    """

    def __init__(self, text: str) -> None:
        self._search: Callable[[bytes], object | None]
        if text == ANYTHING:
            self._search = bytes
            return
        octets = _octets(text)
        if len(octets) > MAX_OCTETS:
            raise InvalidPattern(f"it has more than {MAX_OCTETS} octets")
        if repeated(text) > MAX_REPEATED:
            raise InvalidPattern(f"more than {MAX_REPEATED} characters are repeated or optional, with all repetitions")
        re2, options = _re2()
        try:
            self._search = re2.compile(octets, options).search
        except re2.error as error:
            reason = error.args[0].decode(errors="replace")
            if reason.startswith(("invalid perl operator", "invalid escape sequence")):
                reason += " (RE2 has no look-around and no back-references)"
            raise InvalidPattern(reason) from None

    def matches(self, name: str) -> bool:
        """Return True if the expression matches anywhere in the name."""
        return self._search(_octets(name)) is not None


@cache
def _re2() -> tuple[Any, Any]:
    """Return RE2 with the options of all expressions. Loaded at the first use, because it takes 2.5 MB."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _MEMORY
    return re2, options


def repeated(text: str) -> int:
    """Count the repeated or optional characters and classes of an expression, with repetitions expanded.

    >>> repeated("abc"), repeated("a?b*c"), repeated("(ab?){3}"), repeated("x[0-9]{4}")
    (0, 2, 6, 8)
    """
    # For each open group: its size, how much of it is repeated, and both numbers of its last item.
    groups = [[0, 0, 0, 0]]
    for token in _TOKEN.finditer(text):
        group = groups[-1]
        match token.lastgroup:
            case "flags":
                continue
            case "open":
                groups.append([0, 0, 0, 0])
                continue
            case "close" if len(groups) > 1:
                item = groups.pop()[:2]
                group = groups[-1]
            case "repeat" | "times" | "comma" | "least" | "most":
                times = int(token["most"] or token["least"] or 1) if token["times"] else 1
                size = min(group[2] * max(times, 1), 1 << 40)
                group[0] += size - group[2]
                group[1] += size - group[3]
                group[2:] = [size, size]
                continue
            case kind:
                item = [_size(kind, token[0]), 0]
        group[0] += item[0]
        group[1] += item[1]
        group[2:] = item
    return sum(group[1] for group in groups)


def _size(kind: str | None, text: str) -> int:
    """Return the weight of a character or class."""
    if kind == "property":
        return 200
    if kind == "class":
        return 2 + len(text) // 8 + 200 * len(re.findall(r"\\[pP]", text))
    return max(1, len(text) - 4) if kind == "quoted" else 1


def quoted(name: str) -> str:
    """Return an expression for exactly the given name."""
    return "".join(letter if letter.isalnum() or letter > "\x7f" else f"\\x{ord(letter):02x}" for letter in name)


@lru_cache(maxsize=1024)
def compiled(text: str) -> Pattern:
    """Return the expression, compiled once; raises as :class:`Pattern`."""
    return Pattern(text)


def search(text: str, name: str) -> bool:
    """Return True if the expression matches anywhere in the name. An invalid expression matches nothing."""
    return text == ANYTHING or _search(text, name)


@lru_cache(maxsize=8192)
def _search(text: str, name: str) -> bool:
    try:
        return compiled(text).matches(name)
    except InvalidPattern:
        return False


def _octets(text: str) -> bytes:
    """Encode text as UTF-8, with a private character, matched by ``.``, for every octet that was not text."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return "".join(map(_as_text, text)).encode()


def _as_text(letter: str) -> str:
    """Replace a lone surrogate, which represents an undecodable octet, by a private character."""
    return chr(0x10F000 + ord(letter) - 0xD800) if "\ud800" <= letter <= "\udfff" else letter
