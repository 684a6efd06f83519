"""Sampling of keys: the first ones are all counted, later ones at random."""

ALL_NOTED = 16384
"""Number of messages of which all are counted."""

MEAN_GAP = 16
"""Average number of later messages per counted one."""
