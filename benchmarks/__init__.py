"""Benchmarks of JumpMQ, alone and next to other brokers."""
