"""Cross-validation for states of differential equations."""

from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_consistent_length, check_random_state

from keql._numerics.arguments import naming, refuse_no_array
from keql._observations.columns import split_labels
from keql._observations.data import on_border


class FunctionKFold(BaseEstimator, BaseCrossValidator):
    """K folds inside every function; some rows may always be in training.

    The rows of each function are dealt to the folds in turn, like cards, so that every
    fold holds out about the same part of every function, and no function is missing
    from a training set: an estimator has no state for a function that it has not seen.
    What it predicts of a held-out row is a test of the state *between* observations,
    and of the equation that fills the gap.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds, at least 2.
    function_column : int or str, default=None
        Column of `X` that labels the function a row belongs to, as for the estimator;
        None: all rows are of one function.
    always_train : "border", callable, array-like of bool or None, default=None
        Rows that no fold holds out. "border": those on the border of the box around
        their function's points, such as initial and boundary values, without which
        the rest is extrapolated. A callable takes `X` as it is given to `split` and
        returns which rows these are; it works in nested searches too, where `X` is a
        part of the data. An array says it for each row of `X`. None: there are none.
    shuffle : bool, default=False
        Whether the rows of each function are dealt in random order, rather than in
        that of `X`, where each fold takes every `n_splits`-th row: of a grid that may
        be whole columns.
    random_state : int, RandomState instance or None, default=None
        Of the order, if `shuffle`; an int gives the same folds at every call.

    See Also
    --------
    sklearn.model_selection.KFold : Knows nothing of functions.

    Notes
    -----
    If `groups` are given to `split`, the rows of a function with the same group are
    held out together: all times of one sensor, or repeated measurements at one place,
    which would otherwise be predicted from each other.

    Examples
    --------
    Two functions, labelled in the last column, with values at five times each; the
    first and the last are always known:

    >>> import numpy as np
    >>> from keql.model_selection import FunctionKFold
    >>> t = np.arange(5.0)
    >>> X = np.array([[time, label] for label in (0, 1) for time in t])
    >>> folds = FunctionKFold(3, function_column=1, always_train="border")
    >>> for train, test in folds.split(X):
    ...     print(test)
    [1 6]
    [2 7]
    [3 8]

    A rule of one's own, in a search:

    >>> from sklearn.model_selection import GridSearchCV
    >>> from keql import TwoStepKEqL
    >>> from keql.kernels import RBF
    >>> y = np.where(X[:, 1] == 0, np.sin(X[:, 0]), np.cos(X[:, 0]))
    >>> search = GridSearchCV(
    ...     TwoStepKEqL(state_kernel=RBF(1.0, "fixed"), function_column=1),
    ...     {"state_kernel__length_scale": [0.1, 2.0]},
    ...     cv=FunctionKFold(2, function_column=1, always_train=lambda X: X[:, 0] == 0),
    ... )
    >>> search.fit(X, y).best_params_
    {'state_kernel__length_scale': 2.0}
    """

    # Groups are used where they are given, also with metadata routing.
    __metadata_request__split = {"groups": True}

    def __init__(
        self,
        n_splits: int = 5,
        *,
        function_column: int | str | None = None,
        always_train: Any = None,
        shuffle: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_splits = n_splits
        self.function_column = function_column
        self.always_train = always_train
        self.shuffle = shuffle
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Number of folds.

        Parameters
        ----------
        X, y, groups : object, default=None
            Not looked at; scikit-learn passes them.

        Returns
        -------
        n_splits : int
            The parameter.
        """
        self._check_parameters()
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Any:
        """Rows of the training and of the test set of each fold.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n, n_columns)
            Points, with the column of function labels if there is one.
        y : array-like of shape (n,), default=None
            Not looked at.
        groups : array-like of shape (n,), default=None
            Rows of a function that have the same entry are held out together. None:
            each row by itself.

        Yields
        ------
        train : ndarray of int
            Rows of the training set, in rising order: all others.
        test : ndarray of int
            Rows that are held out, in rising order.

        Raises
        ------
        ValueError
            If a parameter is not as documented, there are fewer rows to hold out than
            folds, or a training set would lack a function.
        """
        self._check_parameters()
        refuse_no_array(X, "X")
        with naming("X, y or groups"):
            check_consistent_length(X, y, groups)
        points, labels = split_labels(X, self.function_column, "function_column")
        kept = self._rows_always_trained(X, points, labels)
        if groups is None:
            groups = range(len(labels))
        else:
            groups = np.asarray(groups).tolist()
        fold = self._deal(labels, groups, kept)
        for k in range(self.n_splits):
            yield np.flatnonzero(fold != k), np.flatnonzero(fold == k)

    def _check_parameters(self):
        n_splits = self.n_splits
        if not isinstance(n_splits, Integral) or n_splits < 2:
            raise ValueError(
                f"n_splits={n_splits!r} must be an integer of at least 2: one fold "
                "would leave nothing to train on."
            )
        if not isinstance(self.shuffle, (bool, np.bool_)):
            raise TypeError(f"shuffle={self.shuffle!r} must be True or False.")
        if not self.shuffle and self.random_state is not None:
            raise ValueError(
                f"random_state={self.random_state!r} has no effect with shuffle=False: "
                "set shuffle=True, or leave random_state=None."
            )

    def _rows_always_trained(self, X, points, labels):
        """Which rows no fold holds out, of shape (n,)."""
        rule, n_rows = self.always_train, len(labels)
        if rule is None:
            return np.zeros(n_rows, dtype=bool)
        if isinstance(rule, str):
            if rule != "border":
                raise ValueError(
                    f"always_train={rule!r} is not known: give 'border', a function of "
                    "X, or one bool for each row of X."
                )
            return on_border(points, labels)
        with naming("always_train"):
            mask = np.asarray(rule(X) if callable(rule) else rule)
        if mask.shape != (n_rows,) or mask.dtype != bool:
            advice = (
                "it must return one bool for each row of the X that it is given."
                if callable(rule)
                else "give one bool for each row of X, or a function of X where X is "
                "only a part of the data, as in nested searches."
            )
            raise ValueError(
                f"always_train {'returned' if callable(rule) else 'is'} an array of "
                f"{mask.dtype} with shape {mask.shape}, and X has {n_rows} rows: "
                + advice
            )
        return mask

    def _deal(self, labels, groups, kept):
        """The fold of each row, -1 for rows that are always in training."""
        units = {}  # function: {group: rows}
        for row, (label, group) in enumerate(zip(labels, groups, strict=True)):
            rows_of = units.setdefault(label, {})
            if not kept[row]:
                rows_of.setdefault(group, []).append(row)
        has_kept = {label for label, keep in zip(labels, kept, strict=True) if keep}
        with naming("random_state"):
            rng = check_random_state(self.random_state) if self.shuffle else None
        fold, place = np.full(len(labels), -1), 0
        for label, rows_of in units.items():
            dealt = list(rows_of.values())
            if len(dealt) == 1 and label not in has_kept:
                raise ValueError(
                    f"the function {label!r} has nothing left in X for training where "
                    f"its only {'row' if len(dealt[0]) == 1 else 'group'} is held out: "
                    "leave the function out, or say in always_train that it stays."
                )
            if self.shuffle:
                dealt = [dealt[i] for i in rng.permutation(len(dealt))]
            # Going on where the last function ended keeps the folds of equal size.
            for rows in dealt:
                fold[rows] = place % self.n_splits
                place += 1
        if place < self.n_splits:
            raise ValueError(
                f"n_splits={self.n_splits} is more than the {place} row(s) or group(s) "
                "of X that can be held out: take fewer folds, or keep fewer rows in "
                "training."
            )
        return fold
