"""Sockets, and connections up to the channels."""
