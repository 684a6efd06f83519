"""Complete jobs between queues and tables, as run by the command line."""
