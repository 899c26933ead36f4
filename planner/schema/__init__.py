"""The documents that enter and leave: frozen, versioned, nothing extra allowed."""
