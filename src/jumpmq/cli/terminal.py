"""Output for terminals, with names from users escaped.

A client may give a queue, a connection or a key any name, with characters that move the cursor, set the terminal's
title, or write from right to left.
"""

from __future__ import annotations

import json
from typing import Any

import typer

from jumpmq.serving.logs import escaped


def json_text(value: Any) -> str:
    """Format a value as JSON with control characters escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


def echo(text: str = "", *, err: bool = False) -> None:
    """Write text with control characters escaped, except newlines and tabs."""
    typer.echo(escaped(text, kept="\n\t"), err=err)
