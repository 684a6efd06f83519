"""The page: login and static files."""
