"""The management port.

``resources/`` has what it shows, a file a resource; ``schema/`` what requests may hold; ``plumbing/`` what all of them
stand on. ``application.py`` puts them together, ``server.py`` serves them in the broker's event loop.
"""
