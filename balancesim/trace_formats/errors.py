"""The error of all trace readers."""


class TraceError(ValueError):
    """A trace cannot be used; the message is one line that names file, line, rule and value."""
