"""Metrics of a process: queues, consumers, channels, connections and the process, as values.

``values`` has the values, ``home`` reads them from the live objects, each by a function of ``of_queues``, ``of_groups``
or ``of_connections``. The management API, metrics, rates, history and warnings work on the values alone.
"""
