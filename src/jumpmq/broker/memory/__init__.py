"""Memory and disk: what is held, who holds it, and what is done when it gets short."""
