"""Telemetry of the broker: audit log, spans, traces and counters."""
