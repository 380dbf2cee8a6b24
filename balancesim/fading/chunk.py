"""Blocks are drawn a chunk at a time, because making a generator costs more than drawing from it."""

CHUNK = 64  #: blocks in a chunk
