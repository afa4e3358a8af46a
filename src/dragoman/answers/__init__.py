"""Corrections of an answer before the client sees it, for a whole Reply and for the events of a stream."""
