"""Joining of a node to its cluster, at every start, before definitions are in memory."""
