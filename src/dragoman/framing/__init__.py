"""Bytes into frames, however the network cut the bytes."""
