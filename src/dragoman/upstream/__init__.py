"""Upstreams: choosing where a request goes, sending it, and reading the answer.

send.py      which upstream to ask, and what to do after a failure      answer.py    one call and its answer
render.py    a client's request for one upstream                        fan_out.py   several answers in parallel
routing.py   which upstreams a model name means                         profiles.py  what servers and models take
upstream_state.py, admission.py, breaker.py, keys.py, retry.py          what one upstream can take just now
transport.py, http/                                                     the one place that talks to a provider
"""

import logging

# Programs that use dragoman as a library and set up no logging get no output (docs.python.org/3/howto/logging.html).
logging.getLogger("dragoman").addHandler(logging.NullHandler())
