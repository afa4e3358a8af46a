"""Who may spend what, what it costs, and what was spent."""
