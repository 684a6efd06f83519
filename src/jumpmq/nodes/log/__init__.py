"""The log of definitions, where several homes share one."""
