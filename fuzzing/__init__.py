"""What is fuzzed, and with what. See the modules."""
