"""Membership of a running node in its cluster: the node's data in etcd.

================  ==================================================================================================
cluster_etcd      requests to etcd, repeated until etcd answers
lease             the key by which peers see that this process is alive
live_homes        the live homes and their addresses
entries           entries of the log: appended, read, applied in order
answers, peers    acknowledgements of entries, through etcd and over links
witness           detection of dead homes, and the removal of their queues
lost, stall       detection of an etcd that lacks entries, or accepts no changes
member, starting  all parts together; the settings at the start
================  ==================================================================================================
"""
