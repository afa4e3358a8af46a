"""The canonical conversation: values without behaviour that belong to no vendor.

Read in this order: `messages` (turns and their parts), `request` (what a caller asks), `reply` (the answer),
`events` (the answer as a stream), `fold` (events into a Reply, and back).
"""
