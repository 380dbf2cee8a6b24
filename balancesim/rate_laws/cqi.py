"""The rate laws ``cqi_table1`` to ``cqi_table3``: the efficiency of the CQI that the SINR reaches."""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import ClassVar

import numpy as np

from balancesim.core.radio import table_efficiency
from balancesim.units import FloatArray


@cache
def cqi_efficiency(table: int) -> FloatArray:
    """Return Qm·R of CQI 1 … 15 in bit/s/Hz (TS 38.214 Tables 5.2.2.1-2 to -4)."""
    rows = [row for row in _rows("cqi_tables.csv") if row["table"] == str(table)]
    return np.array([int(row["modulation_order"]) * float(row["code_rate_x1024"]) / 1024 for row in rows])


@cache
def cqi_thresholds_db(name: str) -> FloatArray:
    """Return the SNR that CQI 1 … 15 of table 1 need for a block error rate of 10 %."""
    rows = [row for row in _rows("cqi_snr_thresholds.csv") if row["set"] == name]
    if not rows:
        names = sorted({row["set"] for row in _rows("cqi_snr_thresholds.csv")})
        raise ValueError(f"thresholds must be one of {', '.join(names)}, got {name!r}")
    return np.array([float(row["snr_db"]) for row in rows])


@cache
def thresholds_of(table: int, name: str) -> FloatArray:
    """Return thresholds of a table: as far above the limit 2^SE − 1 as those of table 1 are at that efficiency."""
    if table == 1:
        return cqi_thresholds_db(name)
    limit_1, limit = (10.0 * np.log10(2.0 ** cqi_efficiency(t) - 1.0) for t in (1, table))
    loss_db = cqi_thresholds_db(name) - limit_1
    return limit + np.interp(limit, limit_1, loss_db)


def _rows(file: str) -> list[dict[str, str]]:
    with (files("balancesim.data") / file).open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def _efficiency(table: int, thresholds: str, sinr: FloatArray) -> FloatArray:
    return table_efficiency(sinr, thresholds_of(table, thresholds), cqi_efficiency(table))


@dataclass(frozen=True, slots=True)
class CqiTable1:
    """CQI table 1 (up to 64QAM) of TS 38.214, Table 5.2.2.1-2, by SNR thresholds at 10 % block errors."""

    name: ClassVar[str] = "cqi_table1"
    thresholds: str = "lte"  #: set of thresholds: lte, aimm, or shannon (the limit)

    def __post_init__(self) -> None:
        cqi_thresholds_db(self.thresholds)

    def spectral_efficiency_bps_hz(self, sinr: FloatArray) -> FloatArray:
        """Return Qm·R of the highest CQI reached; 0 out of range."""
        return _efficiency(1, self.thresholds, sinr)


@dataclass(frozen=True, slots=True)
class CqiTable2:
    """CQI table 2 (up to 256QAM) of TS 38.214, Table 5.2.2.1-3, with the loss of table 1's thresholds."""

    name: ClassVar[str] = "cqi_table2"
    thresholds: str = "lte"

    def __post_init__(self) -> None:
        cqi_thresholds_db(self.thresholds)

    def spectral_efficiency_bps_hz(self, sinr: FloatArray) -> FloatArray:
        """Return Qm·R of the highest CQI reached; 0 out of range."""
        return _efficiency(2, self.thresholds, sinr)


@dataclass(frozen=True, slots=True)
class CqiTable3:
    """CQI table 3 (low efficiency, reliable) of TS 38.214, Table 5.2.2.1-4, with the loss of table 1's thresholds."""

    name: ClassVar[str] = "cqi_table3"
    thresholds: str = "lte"

    def __post_init__(self) -> None:
        cqi_thresholds_db(self.thresholds)

    def spectral_efficiency_bps_hz(self, sinr: FloatArray) -> FloatArray:
        """Return Qm·R of the highest CQI reached; 0 out of range."""
        return _efficiency(3, self.thresholds, sinr)
