"""A real etcd for tests."""

import pytest

from jumpmq.testing.etcd import EtcdMember, etcd, is_installed

__all__ = ["EtcdMember", "etcd", "needs_etcd"]

needs_etcd = pytest.mark.skipif(not is_installed(), reason="etcd is not installed")
