"""The gateway: a server that takes requests in every dialect and sends each to an upstream."""
