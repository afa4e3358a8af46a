"""The gateway: every door, any upstream."""
