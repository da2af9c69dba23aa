"""Very many observations in fewer values, which the linear algebra of states takes."""

from dataclasses import replace

import numpy as np

from keql._observations.data import FunctionData
from keql._observations.fields import condense_field
from keql._observations.records import condense_records
from keql._observations.windows import CondensingLimits


def condense(observations, limits=None):
    """The Observations with fewer values in place of very many.

    Long records in time and fields on fine grids are condensed; of several coordinates,
    or of one that is a ring, some values are taken where they are still too many. Each
    function has its own number of values. Few observations are returned as they are.
    """
    limits = limits or CondensingLimits()
    points = observations.functions[0].points
    is_record = points.shape[1] == 1 and observations.periods is None
    functions = [_condensed(data, is_record, limits) for data in observations.functions]
    pairs = [*zip(functions, observations.functions, strict=True)]
    if all(new is old for new, old in pairs):
        return observations
    return replace(
        observations,
        functions=functions,
        n_samples=sum(len(data.values) for data in observations.functions),
        is_condensed=any(new.weights.max() > old.weights.max() for new, old in pairs),
    )


def _condensed(data, is_record, limits):
    """A FunctionData whose operators have fewer values, or the same one."""
    present = np.unique(data.index)
    samples = [data.of_operator(j) for j in present]
    if is_record:
        fewer = condense_records(samples, limits)
    else:
        fewer = [condense_field(own, limits) for own in samples]
    if all(new is old for new, old in zip(fewer, samples, strict=True)):
        return data
    return FunctionData(
        np.concatenate([own.points for own in fewer]),
        np.concatenate([own.values for own in fewer]),
        np.concatenate([own.weights for own in fewer]),
        np.repeat(present, [len(own.values) for own in fewer]),
        data.operators,
    )
