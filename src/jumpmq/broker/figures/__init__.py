"""What a process tells of its queues, consumers, channels, connections and of itself, as values.

``values`` has the values, ``home`` reads them from the live objects. The management API, metrics, rates, history and
warnings work on the values alone.
"""
