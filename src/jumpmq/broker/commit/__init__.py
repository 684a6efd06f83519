"""Units of work and their commits, and receipts to notify publishers of completion."""
