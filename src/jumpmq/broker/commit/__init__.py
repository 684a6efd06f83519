"""Turns and their commits, and the receipts that tell publishers of complete commits."""
