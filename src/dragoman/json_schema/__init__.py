"""JSON Schema from clients: which of it can be checked, and whether a value fits it."""
