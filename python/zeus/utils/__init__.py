"""Small helpers, and the client of the daemon."""
