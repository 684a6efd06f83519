"""Complete jobs between queues and tables: the Spark commands of the command line."""
