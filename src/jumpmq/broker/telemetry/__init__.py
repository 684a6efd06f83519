"""What the broker tells of its work: audit log, spans, traces and counters."""
