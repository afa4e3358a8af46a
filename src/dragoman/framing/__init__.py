"""Bytes into frames and back, whatever the network cut them into."""
