"""Benchmarks: speed and memory, measured in processes of their own and printed beside a calibration loop."""
