"""Replication of a home's log, without I/O: values, and the octets that replicas send each other.

No part of the broker uses this package: a home has one copy.
"""
