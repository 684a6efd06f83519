"""etcd: its client, how a cluster's settings name it, and what is sealed there."""
