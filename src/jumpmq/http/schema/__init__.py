"""What requests may hold, and the document that says so."""
