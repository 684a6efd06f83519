"""The number of messages per queue after a program of `examples/python`, on either broker."""

COUNTS = {"q1": 16638, "q2": 16631, "q3": 33441, "q4": 33290}
