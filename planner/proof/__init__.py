"""Proof: plans and their bounds evaluated again, without the search that found them."""
