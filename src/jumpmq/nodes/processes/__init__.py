"""The processes of a broker with several workers."""
