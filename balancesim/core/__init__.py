"""The model itself: plain functions over arrays and frozen dataclasses; no SimPy, no files, no clock."""
