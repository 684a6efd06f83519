"""The management port.

``resources/`` has the resources, one file each; ``schema/`` checks the content of requests; ``plumbing/`` is common to
all resources. ``application.py`` combines the resources to an application, and ``server.py`` serves the application in
the broker's event loop.
"""
