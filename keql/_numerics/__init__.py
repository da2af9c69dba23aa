"""Numerical methods that know no kernels: linear algebra, minimisers, scales."""
