"""The REST interface: a handler parses, calls one service method and returns."""
