"""Fits with the equation at collocation points, beside exact states of the data."""
