"""The service: REST, dashboard, storage."""
