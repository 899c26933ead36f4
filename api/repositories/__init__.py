"""The SQL: one module per table or two, each method one statement within a unit of work."""
