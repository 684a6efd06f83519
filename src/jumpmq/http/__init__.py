"""The management port.

``resources/`` has the resources, one file each; ``schema/`` checks the content of requests; ``plumbing/`` is common to
all resources. ``application.py`` combines them, and ``server.py`` serves them in the broker's event loop.
"""
