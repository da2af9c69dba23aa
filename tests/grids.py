"""Grids of values as xarray has them, without xarray."""


class FakeArray:
    """The part of xarray's DataArray that keql relies on."""

    def __init__(self, values, dims, coords, name, attrs):
        self.values, self.dims, self.name, self.attrs = values, dims, name, attrs
        self.coords, self.shape = coords, values.shape

    def transpose(self, *dims):
        order = [self.dims.index(name) for name in dims]
        return FakeArray(self.values.transpose(order), dims, self.coords, None, {})

    def copy(self, data):
        return FakeArray(data, self.dims, self.coords, self.name, dict(self.attrs))

    def rename(self, name):
        return FakeArray(self.values, self.dims, self.coords, name, self.attrs)


class Axis:
    """The coordinates of one dimension."""

    def __init__(self, values):
        self.values = values


def fake(values, dims, coords, name, attrs):
    coords = {key: Axis(axis) for key, axis in coords.items()}
    return FakeArray(values, dims, coords, name, attrs)
