"""Parsing of JSON bodies in steps of some milliseconds, so that the event loop serves other clients in between.

A small body is parsed at once. A large body (a definitions file, a long payload) is parsed member by member: a list
element by element, a string in pieces. Each element of a list, and each member that is neither a list nor a string,
must be small.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

AT_ONCE = 64 << 10
"""Maximum octets of a body parsed at once, and maximum characters of an element. The worst case, a list of `{}`, takes
20 ms.
"""

PIECE = 128 << 10
"""Maximum characters of a string or list parsed per step."""

ELEMENTS_AT_ONCE = 1000

MAX_ELEMENTS = 250_000
"""Maximum number of elements of all lists in a large body, and maximum number of its members."""

BLANKS = re.compile(r"[ \t\n\r]*")
LONGEST_ESCAPE = len("\\u0000")


def read_object(
    octets: bytes | bytearray, at_once: int = AT_ONCE, piece: int = PIECE
) -> Generator[None, None, dict[str, Any]]:
    """Parse a JSON object, in steps of bounded work.

    Args:
        at_once: see :data:`AT_ONCE`.
        piece: see :data:`PIECE`.

    Raises:
        ValueError: the octets are no JSON object, or an element is too large.
    """
    if len(octets) <= at_once:
        found = _decoder.decode(octets.decode())
        if b"\\u" in octets:
            _refuse_halves(found)
    else:
        found = yield from _TextReader(octets.decode(), at_once, piece).members()
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found


class _TextReader:
    """Reads a text from left to right.

    Attributes:
        place: position of the next character.
    """

    def __init__(self, text: str, at_once: int, piece: int) -> None:
        self._text = text
        self._at_once, self._long = at_once, piece
        self._window, self._start, self._has_escapes = "", 0, False
        self._elements = 0
        self.place = 0

    def members(self) -> Generator[None, None, dict[str, Any]]:
        found: dict[str, Any] = {}
        self._expect("{")
        stepped, members = self.place, 0
        while self._next() != "}":
            if found:
                self._expect(",")
            key = self._small()
            if not isinstance(key, str):
                raise ValueError("a key is not a string")
            self._expect(":")
            found[key] = yield from self._value()
            members += 1
            if members > MAX_ELEMENTS:
                raise ValueError(f"more than {MAX_ELEMENTS} members")
            if members % ELEMENTS_AT_ONCE == 0 or self.place - stepped > self._long:
                stepped = self.place
                yield
        self._expect("}")
        if self._next():
            raise ValueError("text after the end of the object")
        return found

    def _value(self) -> Generator[None, None, Any]:
        first = self._next()
        if first == "[":
            return (yield from self._list())
        return (yield from self._string()) if first == '"' else self._small()

    def _list(self) -> Generator[None, None, list[Any]]:
        found: list[Any] = []
        self._expect("[")
        stepped, since = self.place, 0
        while self._next() != "]":
            if found:
                self._expect(",")
            found.append(self._small())
            self._elements += 1
            since += 1
            if self._elements > MAX_ELEMENTS:
                raise ValueError(f"more than {MAX_ELEMENTS} elements of lists")
            if since == ELEMENTS_AT_ONCE or self.place - stepped > self._long:
                stepped, since = self.place, 0
                yield
        self._expect("]")
        return found

    def _string(self) -> Generator[None, None, str]:
        pieces = []
        self.place += 1
        while True:
            piece, ended = self._piece()
            pieces.append(piece)
            if ended:
                found = "".join(pieces)
                # The halves of a surrogate pair may have been in different pieces.
                return found.encode("utf-16", "surrogatepass").decode("utf-16") if _has_halves(found) else found
            yield

    def _piece(self) -> tuple[str, bool]:
        """Return the next piece of a string, never split within an escape, and True for the last piece."""
        text = self._text[self.place : self.place + self._long]
        for cut in range(min(len(text), LONGEST_ESCAPE + 1)):
            part = text[: len(text) - cut] + '"'
            try:
                piece, end = scanstring(part, 0, True)
            except ValueError:
                continue
            self.place += end - (end == len(part))
            ended = end < len(part)
            return piece, ended
        raise ValueError(f"the string at character {self.place} is malformed or has no end")

    def _small(self) -> Any:
        """Return the next value, of at most ``at_once`` characters."""
        self._next()
        for again in (False, True):
            if again or self.place - self._start > len(self._window):
                self._window, self._start = self._text[self.place : self.place + self._at_once], self.place
                self._has_escapes = "\\u" in self._window
            try:
                found, end = _decoder.raw_decode(self._window, self.place - self._start)
            except ValueError:
                continue
            if end < len(self._window) or self._start + end == len(self._text):
                self.place = self._start + end
                if self._has_escapes:
                    _refuse_halves(found)
                return found
        longest = f"longer than {self._at_once} characters"
        raise ValueError(f"the value at character {self.place} is malformed, or {longest}")

    def _next(self) -> str:
        """Return the next non-blank character; empty at the end."""
        if (character := self._text[self.place : self.place + 1]).isspace():
            blanks = BLANKS.match(self._text, self.place, self.place + self._at_once)
            if blanks is not None and len(blanks[0]) == self._at_once:
                raise ValueError(f"too many blanks from character {self.place} on")
            self.place = blanks.end() if blanks is not None else self.place
            character = self._text[self.place : self.place + 1]
        return character

    def _expect(self, character: str) -> None:
        if self._next() != character:
            raise ValueError(f"expected '{character}' at character {self.place}")
        self.place += 1


def _has_halves(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _refuse_halves(found: Any) -> None:
    """Refuse text with unpaired surrogates."""
    json.dumps(found, ensure_ascii=False).encode()


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON number")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)
