"""The demo model: answers without a server, a key or a network, so that everything can be tried at once."""
