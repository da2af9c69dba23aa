"""Values on grids with named axes, as xarray's DataArray and Dataset hold them.

Nothing is imported for it: what has `dims`, `coords` and either `data_vars` or `values`
is taken for such a grid.
"""

import numpy as np


def as_grid(X):
    """A Grid, if X is one; otherwise None."""
    if not (hasattr(X, "dims") and hasattr(X, "coords")):
        return None
    if not hasattr(X.dims, "__iter__"):
        return None
    return Grid(X)


class Grid:
    """A grid with d named axes, and values of variables on it.

    `given` is a DataArray, with one variable, or a Dataset, with any number.
    """

    def __init__(self, given):
        self.given, self.is_dataset = given, hasattr(given, "data_vars")
        sizes = given.sizes if self.is_dataset else dict(self._shape_of(given))
        self.dims = tuple(sizes)
        unknown = [name for name in self.dims if name not in given.coords]
        if unknown:
            raise ValueError(
                f"X has the dimension(s) {', '.join(map(str, unknown))} without "
                "coordinates: say where the values are, with assign_coords."
            )
        self.shape = tuple(sizes[name] for name in self.dims)

    @staticmethod
    def _shape_of(array):
        return zip(array.dims, array.shape, strict=True)

    def points(self):
        """The points as a data frame with a row for each, a column for each axis."""
        import pandas

        axes = [np.asarray(self.given.coords[name].values) for name in self.dims]
        index = np.indices(self.shape).reshape(len(axes), -1)
        columns = [axis[i] for axis, i in zip(axes, index, strict=True)]
        return pandas.DataFrame(dict(zip(self.dims, columns, strict=True)))

    def values(self):
        """The values as a data frame with a row for each point; None without any.

        Columns are called as the variables are, that of an unnamed DataArray "u".
        """
        import pandas

        if not self.is_dataset:
            arrays = {self.given.name or "u": self.given}
        else:
            arrays = {name: self.given[name] for name in self.given.data_vars}
        other = [n for n, array in arrays.items() if set(array.dims) != set(self.dims)]
        if other:
            raise ValueError(
                f"X has the variable(s) {', '.join(map(str, other))} without all of "
                f"the dimensions {', '.join(self.dims)}: leave them out with drop_vars."
            )
        columns = {
            name: np.asarray(array.transpose(*self.dims).values).ravel()
            for name, array in arrays.items()
        }
        for name, column in columns.items():
            if column.dtype.kind == "c":
                raise ValueError(
                    f"X has complex values of {name}: give real and imaginary parts as "
                    "two variables."
                )
            if column.dtype.kind == "f" and np.any(np.isinf(column)):
                raise ValueError(f"X has infinite values of {name}: put NaN for none.")
        return pandas.DataFrame(columns) if columns else None

    def table(self):
        """Points and values of the rows in which anything was measured."""
        values = self.values()
        if values is None:
            raise ValueError("X is a Dataset without variables: nothing was measured.")
        measured = values.notna().any(axis=1)
        return self.points()[measured], values[measured]

    def filled(self, values, names):
        """A grid like the given one with other values (n,) or (n, S), or several.

        Its coordinates are kept, and of a DataArray the attributes and the name;
        variables of a Dataset are replaced or added by `names`. A tuple of values is a
        tuple of grids.
        """
        if isinstance(values, tuple):
            return tuple(self.filled(each, names) for each in values)
        columns = values.reshape(len(values), -1).T
        if not self.is_dataset:
            if len(columns) > 1:
                raise ValueError(
                    f"X is a DataArray, but there are the states {', '.join(names)}: "
                    "give a Dataset, such as X.to_dataset(name='u')."
                )
            return self.given.copy(data=columns[0].reshape(self.shape))
        known = self.given.data_vars
        variables = {
            name: (
                self.dims,
                column.reshape(self.shape),
                dict(known[name].attrs) if name in known else {},
            )
            for name, column in zip(names, columns, strict=True)
        }
        return self.given.assign(variables)

    def named(self, values, name):
        """A grid like the given one with the values (n,) of a quantity of its own.

        As :meth:`filled`, but a DataArray has the `name` and no attributes.
        """
        if isinstance(values, tuple):
            return tuple(self.named(each, name) for each in values)
        filled = self.filled(values, (name,))
        if not self.is_dataset:
            filled = filled.rename(name)
            filled.attrs = {}
        return filled


def read_grid(grid, y):
    """Points and values of a Grid, of which nothing is said a second time in `y`."""
    if y is not None:
        raise ValueError(
            "y is given beside a grid: X holds the values itself. Leave y out."
        )
    return grid.table()
