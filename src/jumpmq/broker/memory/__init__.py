"""Memory and disk: amounts held, their holders, and measures against a shortage."""
