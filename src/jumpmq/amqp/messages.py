"""Messages and the wire format's hot path: the compiled kernel or, if not built, the reference implementation."""

import warnings

try:
    from jumpmq.amqp._kernel import (
        Body,
        Message,
        any_copies,
        check_properties,
        decode_deliveries,
        decode_properties,
        encode_deliveries,
        encode_properties,
        encode_rows,
        examine,
        hash_keys,
        messages_of_rows,
        relay_deliveries,
        routing_keys,
        scan,
    )
except ImportError:
    warnings.warn(
        "jumpmq's AMQP kernel is not compiled: the reference implementation in Python is many times slower. "
        "Install a C compiler and reinstall jumpmq.",
        RuntimeWarning,
        stacklevel=2,
    )
    from jumpmq.amqp._reference import (  # type: ignore[assignment]
        Body,
        Message,
        any_copies,
        check_properties,
        decode_deliveries,
        decode_properties,
        encode_deliveries,
        encode_properties,
        encode_rows,
        examine,
        hash_keys,
        messages_of_rows,
        relay_deliveries,
        routing_keys,
        scan,
    )

__all__ = [
    "Body",
    "Message",
    "any_copies",
    "check_properties",
    "decode_deliveries",
    "decode_properties",
    "encode_deliveries",
    "encode_properties",
    "encode_rows",
    "examine",
    "hash_keys",
    "messages_of_rows",
    "relay_deliveries",
    "routing_keys",
    "scan",
]
