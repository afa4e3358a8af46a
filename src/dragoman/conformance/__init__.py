"""Measures what conversions carry: field accounts, the pair table, `dragoman verify`, and the pages made from them."""
