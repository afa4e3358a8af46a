"""What dragoman carries, measured: field accounts, the pair table, and the pages under docs/ made from them."""
