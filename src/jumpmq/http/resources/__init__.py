"""What the management port shows, a file a resource; ``ROUTES`` of each says which paths are its."""
