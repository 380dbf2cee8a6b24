"""Waiting requests as a policy sees them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from balancesim.units import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Candidates:
    """Waiting requests as columns, in order of arrival. Arrays are read-only."""

    request_id: IntArray
    prompt_tokens: IntArray
    output_tokens: IntArray  #: predicted
    acceptance_rate: FloatArray  #: predicted
    slack_s: FloatArray  #: d_k = arrival + T − now − t_down: time left for upload and inference; inf = no deadline
    upload_s: FloatArray  #: predicted upload time from now on, at the rate of the current block; 0 = already in
    waited_s: FloatArray  #: time since arrival
    prompt_bits: FloatArray  #: bits still to be uploaded
    spectral_efficiency_bps_hz: FloatArray  #: of the uplink in the current block; NaN once the prompt is in

    def __post_init__(self) -> None:
        for column in vars(self).values():
            column.flags.writeable = False

    @classmethod
    def on_demand(
        cls, ready: Mapping[str, IntArray | FloatArray], make: Callable[[str], IntArray | FloatArray]
    ) -> "Candidates":
        """Return candidates of columns that are there, read-only, and of others made by name at their first use.

        Few policies look at all columns, and an epoch comes with every arrival.
        """
        candidates = object.__new__(cls)
        vars(candidates).update(ready, _make=make)
        return candidates

    def __getattr__(self, name: str) -> IntArray | FloatArray:
        """Make a column; called only while it is not there."""
        if name not in _CANDIDATE_COLUMNS or "_make" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        column: IntArray | FloatArray = vars(self)["_make"](name)
        column.flags.writeable = False
        vars(self)[name] = column
        return column

    def __len__(self) -> int:
        return len(self.request_id)

    def take(self, index: IntArray | BoolArray) -> "Candidates":
        """Return the rows selected by an index or mask."""
        return Candidates(**{name: getattr(self, name)[index] for name in _CANDIDATE_COLUMNS})


_CANDIDATE_COLUMNS = tuple(column.name for column in fields(Candidates))
