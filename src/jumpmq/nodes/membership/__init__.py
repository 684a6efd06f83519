"""Membership of a running node in its cluster: the node's data in etcd.

================  ==================================================================================================
cluster_etcd      calls of etcd, repeated until they are answered
lease             the key by which others see that this process lives
live_homes        the homes that live, and their addresses
entries           entries of the log: appended, read, applied in order
answers, peers    acknowledgements of entries, over etcd and over links
witness           homes that are dead, and what ends with them
lost, standstill  an etcd that lacks entries, or takes no change
member, starting  all of that, made and wired; and the settings that it begins with
================  ==================================================================================================
"""
