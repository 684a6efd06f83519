"""Runs of messages: the compiled kernel, or its plain twin where it was not built."""

import warnings

try:
    from jumpmq.queues._kernel import (
        body_octets,
        by_destination,
        by_holder,
        by_priority,
        by_slot,
        carries,
        claim,
        count_slots,
        enter_queue,
        octets,
        of_body,
        persistent,
        set_consumer,
        set_slots,
        settle_stored,
        split_upto,
        untracked,
    )
except ImportError:
    warnings.warn(
        "jumpmq's compiled kernel of queues is not built: the plain Python twin serves, at a fraction of the speed. "
        "Install a C compiler and reinstall jumpmq.",
        RuntimeWarning,
        stacklevel=2,
    )
    from jumpmq.queues._reference import (
        body_octets,
        by_destination,
        by_holder,
        by_priority,
        by_slot,
        carries,
        claim,
        count_slots,
        enter_queue,
        octets,
        of_body,
        persistent,
        set_consumer,
        set_slots,
        settle_stored,
        split_upto,
        untracked,
    )

__all__ = [
    "body_octets",
    "by_destination",
    "by_holder",
    "by_priority",
    "by_slot",
    "carries",
    "claim",
    "count_slots",
    "enter_queue",
    "octets",
    "of_body",
    "persistent",
    "set_consumer",
    "set_slots",
    "settle_stored",
    "split_upto",
    "untracked",
]
