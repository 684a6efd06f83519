"""A broker with its management port in one process: what `jumpmq serve`, a worker and `jumpmq.running()` share."""
