"""Whole jobs between queues and tables, as the command line runs them."""
