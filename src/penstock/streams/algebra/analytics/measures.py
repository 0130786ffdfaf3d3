"""How a window is set against earlier windows of the same key.

    Comparison(7)           with the one seven windows before: how it was, the difference, the ratio
    Anomaly(60, 3.5)        with the median of up to sixty windows before, and how far they scatter

Only numbers can be measured so.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.errors import InvalidInput, KernelError
from penstock.events.compiled import Numbers
from penstock.streams.algebra.folds.fold import take
from penstock.streams.state import fixed_width

_MOST = 10_000  # windows that are looked back at
_ENOUGH = 5  # earlier windows to call one unusual

# The median absolute deviation of a normal distribution is 0.6745 of its standard deviation, which
# is 1.253314 of its mean absolute deviation.
_OF_MEDIAN = 0.6745
_OF_MEAN = 1.253314

_Doubles = NDArray[np.float64]


class Measure(Protocol):
    @property
    def lags(self) -> Numbers:
        """How many windows before are looked at, from the nearest to the farthest."""
        ...

    def fields(self, name: str, kind: pa.DataType) -> list[pa.Field]:
        """What is said of a result of this name and type."""
        ...

    def columns(self, own: pa.Array, earlier: pa.Array) -> list[pa.Array]:
        """Those fields. Of each value there are as many earlier ones as lags, null for none."""
        ...

    def spec(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Comparison:
    """With the window `back` windows before.

    The difference is a long, a double or the decimal that the result is; the ratio is a double, and
    null where the earlier result is 0. All is null where there is no earlier one.
    """

    back: int = 1

    @property
    def lags(self) -> Numbers:
        return np.array([self.back])

    def fields(self, name: str, kind: pa.DataType) -> list[pa.Field]:
        return [
            pa.field(f"{name}_before", kind),
            pa.field(f"{name}_difference", _difference_kind(kind)),
            pa.field(f"{name}_ratio", pa.float64()),
        ]

    def columns(self, own: pa.Array, earlier: pa.Array) -> list[pa.Array]:
        ratio = pc.divide(_cast_to_double(own), _cast_to_double(earlier))
        is_zero = pc.equal(earlier, pa.scalar(0).cast(earlier.type))
        nothing = pa.scalar(None, pa.float64())
        return [earlier, _difference(own, earlier), pc.if_else(is_zero, nothing, ratio)]

    def spec(self) -> dict[str, Any]:
        return {"measure": "comparison", "back": self.back}


@dataclass(frozen=True)
class Anomaly:
    """Against the windows there are among the `history` windows before.

    What is expected is their median, and the score is the modified z-score of Iglewicz and Hoaglin
    (How to Detect and Handle Outliers, 1993), who call one of more than 3.5 an outlier: 0.6745
    times the distance from the median, in median absolute deviations. Where more than half of the
    windows are equal, that deviation is 0, and the mean one is taken instead; where all are, the
    score of any other value is infinite. Nothing is called unusual by fewer than 5 windows, or half
    of the history if that is less. Earlier results that are null, NaN or infinite do not count.
    """

    history: int
    threshold: float

    def __post_init__(self) -> None:
        if not 1 <= self.history <= _MOST:
            raise InvalidInput(
                f"there is no history of {self.history} windows", hint=f"from 1 to {_MOST:,}"
            )
        if not self.threshold > 0:
            raise InvalidInput(
                f"a threshold of {self.threshold} would make everything unusual",
                hint="3.5 is usual; a higher one finds less",
            )

    @property
    def lags(self) -> Numbers:
        return np.arange(1, self.history + 1)

    def fields(self, name: str, kind: pa.DataType) -> list[pa.Field]:
        return [
            pa.field(f"{name}_expected", pa.float64()),
            pa.field(f"{name}_score", pa.float64()),
            pa.field(f"{name}_unusual", pa.string()),
        ]

    @np.errstate(all="ignore")
    def columns(self, own: pa.Array, earlier: pa.Array) -> list[pa.Array]:
        past = _doubles(earlier).reshape(-1, self.history)
        past = np.where(np.isfinite(past), past, np.nan)
        counts = np.count_nonzero(~np.isnan(past), axis=1)
        expected = _medians(past, counts)
        away = np.abs(past - expected[:, None])
        median, mean = _medians(away, counts), np.nansum(away, axis=1) / counts
        distance = _doubles(own) - expected
        score = np.where(median > 0, _OF_MEDIAN * distance / median, distance / (_OF_MEAN * mean))
        score[distance == 0] = 0
        is_unusual = (np.abs(score) > self.threshold) & (counts >= self._enough)
        words = np.where(is_unusual, (score < 0).astype(np.int64), -1)
        return [
            fixed_width.from_numbers(pa.float64(), expected, counts > 0),
            fixed_width.from_numbers(pa.float64(), score, ~np.isnan(score)),
            take(pa.array(["high", "low"]), words),
        ]

    @property
    def _enough(self) -> int:
        return max(1, min(_ENOUGH, self.history // 2))

    def spec(self) -> dict[str, Any]:
        return {"measure": "anomaly", "history": self.history, "threshold": self.threshold}


def measure_from_spec(spec: dict[str, Any]) -> Measure:
    if spec["measure"] == "comparison":
        return Comparison(spec["back"])
    return Anomaly(spec["history"], spec["threshold"])


def is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _difference_kind(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(kind):
        return kind
    return pa.int64() if pa.types.is_integer(kind) else pa.float64()


def _difference(own: pa.Array, earlier: pa.Array) -> pa.Array:
    kind = _difference_kind(own.type)
    # The difference of two decimals has a digit more, for which there may be no room.
    wide = pa.decimal256(kind.precision, kind.scale) if pa.types.is_decimal(kind) else kind
    try:
        return pc.subtract_checked(own.cast(wide), earlier.cast(wide)).cast(kind)
    except pa.ArrowInvalid:
        raise KernelError(
            f"the difference of two windows leaves {kind}",
            hint="aggregate a wider type, such as decimal(38, 0) or double",
        ) from None


def _cast_to_double(array: pa.Array) -> pa.Array:
    return array.cast(pa.float64(), safe=False)


def _doubles(array: pa.Array) -> _Doubles:
    """NaN for null."""
    values: _Doubles = fixed_width.numbers(_cast_to_double(array))
    return np.where(fixed_width.validity(array), values, np.nan)


def _medians(values: _Doubles, counts: Numbers) -> _Doubles:
    """The median of each row, of which so many are not NaN; NaN where none is."""
    ordered = np.sort(values, axis=1)  # NaN is put last
    rows = np.arange(len(values))
    low, high = (ordered[rows, each] for each in (np.maximum(counts - 1, 0) // 2, counts // 2))
    medians: _Doubles = low / 2 + high / 2
    return medians
