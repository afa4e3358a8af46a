"""The canonical conversation: values owned by no vendor, without behaviour.

To read in order: `messages` (what is said), `request` (the question), `reply` (the answer),
`events` (the answer in pieces), `fold` (pieces into an answer, and back).
"""
