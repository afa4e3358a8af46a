"""For tests of what is built on dragoman: strict checkers of the vendors' wires."""
