"""What Java is told, by the Sparks that tests start."""

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""A process of seconds is over before its second compiler pays back."""
