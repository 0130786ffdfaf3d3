import numpy as np
import pyarrow as pa
import pytest

from penstock.streams.algebra.changes import differs
from tests.streams.state.samples import SAMPLES


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_values_of_every_type_differ_from_others_only(name: str) -> None:
    kind, values = SAMPLES[name]
    values = [*values, None]
    for turn in range(len(values)):
        turned = pa.array(values[turn:] + values[:turn], kind)
        expected = np.full(len(values), turn != 0)
        assert np.array_equal(differs(pa.array(values, kind), turned), expected)
