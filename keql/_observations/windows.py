"""What many neighbouring samples say, as few values: Gauss's rule of a window.

In a short window of a coordinate a state is a polynomial of low degree, whatever its
equation. The n samples of a window, of precisions w_i, say of a polynomial of degree q
what its values at q + 1 places say with independent errors: those of the Gauss rule of
the measure sum_i w_i delta(t_i), whose weights are the precisions of these values. For
the nodes x_k and weights lambda_k of this rule, and the orthonormal polynomials p_j of
the measure, least squares has the covariance

    sum_j p_j(x_k) p_j(x_l) = delta_kl / lambda_k.

Nodes and weights are eigenvalues and eigenvectors of the Jacobi matrix <p_i, t p_j>
(Golub and Welsch, "Calculation of Gauss quadrature rules", Math. Comp. 23, 1969). What
a state has of degree q + 1 vanishes at these nodes and does no harm either.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class CondensingLimits:
    """When there are too many values, and to how many they are condensed.

    The linear algebra of states takes the number of values cubed. Records in time are
    condensed to the first number of values for which windows are short enough; if none
    is, as where noise is correlated or there is none, only every k-th sample is taken.
    Fields on grids are condensed to the fewest values whose windows are short enough
    along each axis, which is tested by many more coefficients.

    sizes : tuple of int. Numbers of values of each observed operator that are tried.
    shortest : float. A record of fewer samples than this, in units of the number of
        values, is left as it is.
    degree : int. Of the polynomials, q: there are q + 1 values in each window.
    excess : float. Mean square of the coefficients of degree q + 2 in units of what
        noise alone makes of them, 1 on average, up to which windows are short enough.
    least_noise : float. Root mean square of what polynomials leave, in units of the
        standard deviation of the values, below which these count as exact; if they
        leave less, as few of them are taken as they are.
    small_field : int. A field of fewer values is left as it is.
    excess_of_fields : float. The same of the degrees q + 2 and q + 3, along each axis.
        Of 25,600 values of KdV's and Burgers' equations with noise of 1 %, errors of
        the condensed ones were then 1.05 and 1.01 times what noise makes of them.
    fewest_of_fields : int. A field is condensed to so many values at least: few do not
        tell how large their errors are.
    of_fields : int. Of several coordinates, or around rings, at most so many values of
        each observed operator of a function are taken, drawn at random, always the
        same: states of two steps take the cube of their number. Of exact ones on a grid
        the first of the `sizes` are.
    """

    sizes: tuple = (1000, 2000, 4000)
    shortest: float = 1.5
    degree: int = 7
    excess: float = 1.5
    least_noise: float = 1e-6
    small_field: int = 750
    excess_of_fields: float = 1.2
    fewest_of_fields: int = 400
    of_fields: int = 2000


@dataclass(frozen=True)
class WindowRule:
    """Gauss's rule of the samples of a window.

    Samples are meant in units of their errors: values times the roots of precisions.

    nodes, weights : ndarray of shape (q + 1,). Places, and the precisions there.
    rows : ndarray of shape (q + 1, n). Orthonormal; applied to samples they are the
        values at the nodes, times the roots of their weights.
    beyond : ndarray of shape (k, n). Orthonormal; applied to samples they are the
        coefficients of the degrees q + 1, q + 2, ...
    """

    nodes: np.ndarray
    weights: np.ndarray
    rows: np.ndarray
    beyond: np.ndarray

    @classmethod
    def of_samples(cls, t, roots, degree, n_beyond):
        """The rule of samples at `t`, whose precisions have these roots."""
        middle, half = 0.5 * (t[0] + t[-1]), 0.5 * (t[-1] - t[0])
        x, n = (t - middle) / half, degree + 1
        columns = np.polynomial.legendre.legvander(x, degree + n_beyond)
        Q, _ = np.linalg.qr(columns * roots[:, None])
        nodes, vectors = np.linalg.eigh(Q[:, :n].T @ (x[:, None] * Q[:, :n]))
        # The first column of Q is the constant polynomial: its sign is free.
        first = vectors[0] * (Q[:, 0] @ roots)
        rows = (vectors * np.sign(first)).T @ Q[:, :n].T
        return cls(middle + half * nodes, first**2, rows, Q[:, n:].T)
