"""Derivatives from values at a few points nearby, wherever these are."""

import numpy as np


def stencil_weights(nodes, places, order):
    """Weights of derivatives of the polynomials through values at nodes.

    nodes : ndarray of shape (..., w). Different in each row.
    places : ndarray of shape (...). Where derivatives are taken.
    order : int. The highest order.

    Returns weights : ndarray of shape (order + 1, ..., w). Of the derivatives of the
        orders 0, 1, ...: found node by node (Fornberg, "Generation of finite difference
        formulas on arbitrarily spaced grids", Mathematics of Computation 51, 1988).
    """
    weights = np.zeros((order + 1, *nodes.shape))
    weights[0, ..., 0] = 1.0
    orders = np.arange(1, order + 1).reshape(-1, *np.ones(places.ndim, dtype=int))
    product, beside = np.ones(places.shape), nodes[..., 0] - places
    for i in range(1, nodes.shape[-1]):
        last, beside = beside, nodes[..., i] - places
        before, product = product, np.ones(places.shape)
        for j in range(i):
            apart = nodes[..., i] - nodes[..., j]
            product = product * apart
            own = weights[..., j].copy()
            if j == i - 1:  # the node itself, from the one before
                ratio = before / product
                weights[0, ..., i] = -ratio * last * own[0]
                weights[1:, ..., i] = ratio * (orders * own[:-1] - last * own[1:])
            weights[0, ..., j] = beside * own[0] / apart
            weights[1:, ..., j] = (beside * own[1:] - orders * own[:-1]) / apart
    return weights
