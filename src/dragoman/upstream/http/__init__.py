"""HTTP/1.1 to an upstream: addresses, sockets, connections kept for the next request."""
