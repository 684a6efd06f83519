"""Messages laid out as Arrow columns: the compiled kernel, or its plain twin where it was not built."""

import warnings

from jumpmq.amqp.messages import Message

try:
    from jumpmq.store._kernel import (
        alike,
        binary_column,
        expiry_column,
        from_columns,
        join_batch,
        row_block,
        seq_column,
        time_column,
    )
except ImportError:
    warnings.warn(
        "jumpmq's compiled kernel of the store is not built: the plain Python twin serves, at a fraction of the speed. "
        "Install a C compiler and reinstall jumpmq.",
        RuntimeWarning,
        stacklevel=2,
    )
    from jumpmq.store._reference import (
        alike,
        binary_column,
        expiry_column,
        from_columns,
        join_batch,
        row_block,
        seq_column,
        time_column,
    )

__all__ = [
    "alike",
    "binary_column",
    "body_octets",
    "expiry_column",
    "from_columns",
    "join_batch",
    "row_block",
    "seq_column",
    "time_column",
]


def body_octets(messages: list[Message]) -> int:
    """Octets of all bodies."""
    return alike(messages)[4] if messages else 0
