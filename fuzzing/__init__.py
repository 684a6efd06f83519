"""Fuzzing of JumpMQ: generated sessions, damaged input, and failures. CONTRIBUTING.md lists the modules."""
