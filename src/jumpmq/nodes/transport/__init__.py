"""The transport between homes: links, calls beside them, and the sockets under both."""
