"""How many examples a property is tried with.

A usual run tries the same few every time, so more of them would find nothing new. HYPOTHESIS=wild looks for new ones.
"""

import os

WILD = os.environ.get("HYPOTHESIS") == "wild"


def examples(most: int) -> int:
    """As many as given when looking for new ones, and a third in a usual run."""
    return most if WILD else max(1, most // 3)
