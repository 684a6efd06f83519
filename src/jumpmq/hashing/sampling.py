"""Sampling of keys: the first messages are all counted, later messages at random."""

ALL_NOTED = 16384
"""Number of messages counted without sampling."""

MEAN_GAP = 16
"""Average number of later messages per counted message."""
