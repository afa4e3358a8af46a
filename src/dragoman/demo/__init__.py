"""The demo model: answers without a server, a key or a network, so that everything can be tried at once.

model.py       the model: its rules and its answers     prompt.py    what a request asks of it
tool_calls.py  the tools it calls                       sampler.py   a value for a JSON Schema
patterns.py    a text for a regular expression
"""

MODELS = ("demo",)
