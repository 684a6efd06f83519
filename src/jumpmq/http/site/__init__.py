"""The page: its login, and its static files."""
