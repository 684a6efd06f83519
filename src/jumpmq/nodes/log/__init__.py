"""Log of definitions shared by several homes."""
