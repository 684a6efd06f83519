"""Common parts of resources: authentication, access, parsing of requests, answers."""
