"""Identity and permissions of clients: passwords, tokens, certificates, permissions."""
