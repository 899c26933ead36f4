"""Clusters as tools and clouds describe them."""
