"""Policies side by side, from the tables of a result folder alone."""

from balancesim.compare.comparison import SINGLE_MODES, Comparison, compare
from balancesim.compare.export import write_comparison
from balancesim.compare.render import render
from balancesim.compare.statistics import Interval, student_interval

__all__ = ["SINGLE_MODES", "Comparison", "Interval", "compare", "render", "student_interval", "write_comparison"]
