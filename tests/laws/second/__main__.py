"""Every recorded exchange, converted to every dialect and read by the second reader: what is lost without a note.

python -m tests.laws.second [request|reply|stream] [source] [target]
"""

import sys
from collections import Counter

from tests.laws.second.corpus import DIALECTS, problems_of


def main() -> int:
    wanted = [word for word in sys.argv[1:] if word in DIALECTS]
    what = [word for word in sys.argv[1:] if word in ("request", "reply", "stream")] or ["request", "reply", "stream"]
    count: Counter[str] = Counter()
    for source in wanted[:1] or DIALECTS:
        for to in wanted[1:2] or DIALECTS:
            for kind in what:
                for case, found in problems_of(source, to, kind):
                    for problem in found:
                        count[kind] += 1
                        sys.stdout.write(f"{kind} {source}->{to} {case}: {problem}\n")
    sys.stdout.write(f"{dict(count)}\n")
    return 1 if count else 0


sys.exit(main())
