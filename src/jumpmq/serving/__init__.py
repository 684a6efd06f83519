"""A broker with its management port in one process, for `jumpmq serve`, workers and `jumpmq.running()`."""
