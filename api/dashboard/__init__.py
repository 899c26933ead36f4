"""The dashboard: pages over the same services as the REST interface."""
