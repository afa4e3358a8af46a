"""Who may come in, and what a key may do and spend."""
