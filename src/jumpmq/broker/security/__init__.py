"""Who a client is, and what it may do: passwords, tokens, certificates, permissions."""
