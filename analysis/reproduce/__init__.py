"""Reproductions of published studies."""
