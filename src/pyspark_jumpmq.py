"""Makes Spark find the format ``jumpmq`` automatically: Spark looks for modules with names in ``pyspark_``.

So ``format("jumpmq")`` and ``USING jumpmq`` need no ``jumpmq.spark.register`` where Spark's Python is the one that has
jumpmq, as in an activated environment. What ``register`` does beyond is in :func:`jumpmq.spark.register`.
"""

from jumpmq.spark.source import JumpMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
