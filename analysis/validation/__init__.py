"""Published measurements beside ours: ``python -m analysis.validation`` prints them, writes ``docs/validation.csv``."""
