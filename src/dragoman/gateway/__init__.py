"""The gateway: a server that takes requests in every dialect and sends each to an upstream."""

# What the commands that look for a gateway have to know, too.
HOST, PORT = "127.0.0.1", 20006  # where it listens unless told otherwise
DEFAULT_MODEL = "x-dragoman-default-model"  # a header of every list of models
