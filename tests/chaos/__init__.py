"""Chaos: a real server and real agents on loopback, and what may befall them."""
