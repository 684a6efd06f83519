"""A broker with its management port in one process: common to `jumpmq serve`, workers and `jumpmq.running()`."""
