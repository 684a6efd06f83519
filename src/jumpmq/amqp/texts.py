"""Header values as text, for readers with columns of text: numbers in decimal, tables and arrays as JSON."""

import base64
import json
from datetime import datetime
from typing import Any

from jumpmq.amqp.fields import Field, read_value, to_python


def header_texts(fields: list[Field]) -> dict[str, str | None]:
    """Render a header table as text; of headers with the same name the last one counts."""
    return {name: _text(value) for name, value in to_python(fields).items()}


def value_text(octets: bytes) -> str | None:
    """Render a field's value as text, given its type octet and the value."""
    kind, value = read_value(octets)
    return _text(to_python([Field("", kind, value)])[""])


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, dict | list | bool):
        return json.dumps(value, default=_scalar, ensure_ascii=False)
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode("ascii")
    return str(value)
