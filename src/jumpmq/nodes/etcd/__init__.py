"""etcd: client, a cluster's etcd settings, and encryption of stored values."""
