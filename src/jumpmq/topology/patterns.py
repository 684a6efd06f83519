"""Regular expressions that come from outside: policies, permissions, name filters.

They are RE2's, which are matched in time linear in the name, whatever the expression. What RE2 lacks (look-around,
back-references) is refused, and so are expressions that are too long.
"""

from __future__ import annotations

from functools import lru_cache

import re2

MAX_OCTETS = 4096
"""The longest expression. Matching a name takes at most its octets times those of the expression."""

_MEMORY = 1 << 20
"""Octets that a compiled expression may take; with more it would be refused, or matched more slowly."""

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.never_capture = True
_OPTIONS.max_mem = _MEMORY


class InvalidPattern(ValueError):
    """An expression that is not taken; the text says why."""


class Pattern:
    """A regular expression.

    Raises:
        InvalidPattern: it is malformed, too long, or not RE2's.
    """

    def __init__(self, text: str) -> None:
        octets = _octets(text)
        if len(octets) > MAX_OCTETS:
            raise InvalidPattern(f"it has more than {MAX_OCTETS} octets")
        try:
            self._search = re2.compile(octets, _OPTIONS).search
        except re2.error as error:
            reason = error.args[0].decode(errors="replace")
            if reason.startswith(("invalid perl operator", "invalid escape sequence")):
                reason += " (RE2 has no look-around and no back-references)"
            raise InvalidPattern(reason) from None

    def matches(self, name: str) -> bool:
        """Whether it matches somewhere in the name."""
        return self._search(_octets(name)) is not None


def quoted(name: str) -> str:
    """An expression that matches a name, and nothing else."""
    return "".join(letter if letter.isalnum() or letter > "\x7f" else f"\\x{ord(letter):02x}" for letter in name)


@lru_cache(maxsize=1024)
def compiled(text: str) -> Pattern:
    """The expression, compiled once; errors as :class:`Pattern`."""
    return Pattern(text)


@lru_cache(maxsize=65536)
def search(text: str, name: str) -> bool:
    """Whether the expression matches somewhere in the name. One that is invalid matches nothing."""
    try:
        return compiled(text).matches(name)
    except InvalidPattern:
        return False


def _octets(text: str) -> bytes:
    """The text as UTF-8, with a character of its own, which ``.`` matches, for each octet that was no text."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return "".join(map(_as_text, text)).encode()


def _as_text(letter: str) -> str:
    """A private character in place of a lone surrogate, by which such an octet is kept in a string."""
    return chr(0x10F000 + ord(letter) - 0xD800) if "\ud800" <= letter <= "\udfff" else letter
