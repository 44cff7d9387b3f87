"""Grids of runs and the tables they give."""
