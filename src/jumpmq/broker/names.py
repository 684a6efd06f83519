"""Names that the broker makes."""

import secrets


def unique_name() -> str:
    """A name that is used nowhere else."""
    return secrets.token_urlsafe(16)
