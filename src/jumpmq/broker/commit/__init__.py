"""Turns and the commits that they end in, and the receipts that tell publishers of them."""
