"""Sockets, and the connections on them up to the channels."""
