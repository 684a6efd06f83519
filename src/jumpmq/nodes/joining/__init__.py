"""Joining of a node to its cluster, at each start, before definitions are loaded."""
