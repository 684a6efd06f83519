"""The messages of each queue after one of the programs in `examples/python`, on either broker."""

COUNTS = {"q1": 16638, "q2": 16631, "q3": 33441, "q4": 33290}
