"""Upstreams: deciding where a request goes, and the one place that sends it."""

import logging

# A program that uses us as a library and has not set up logging hears nothing (docs.python.org/3/howto/logging.html).
logging.getLogger("dragoman").addHandler(logging.NullHandler())
