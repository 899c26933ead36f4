"""What the service does; each method opens its own units of work."""
