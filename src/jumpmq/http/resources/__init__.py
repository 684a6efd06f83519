"""Resources of the management API, a file per resource; their paths are in ``ROUTES``."""
