"""Grids whose points move with what is steep, and evolution equations on these."""
