"""A cluster of nodes: what they agree on is in etcd."""
