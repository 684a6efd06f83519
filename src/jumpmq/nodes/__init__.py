"""Links: what the processes of a broker tell each other."""
