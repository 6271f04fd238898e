"""Errors that say what to do."""


class Unavailable(Exception):
    """What was asked for cannot be done here; the text says why, and what to do."""
