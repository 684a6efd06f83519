"""Java options of the tests' Sparks."""

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""A process of seconds ends before its second compiler pays back."""
