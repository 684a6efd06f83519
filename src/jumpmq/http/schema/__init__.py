"""Shapes of request bodies, and the OpenAPI document of the API."""
