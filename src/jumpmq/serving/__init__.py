"""A broker with a management port in one process: common to `jumpmq serve`, workers and `jumpmq.running()`."""
