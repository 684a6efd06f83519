"""How keys are counted: all of the first, then a sample."""

ALL_NOTED = 16384
"""Messages up to which each is counted."""

MEAN_GAP = 16
"""Of those that follow, one in so many is counted, on average."""
