"""Spectral efficiency from SINR."""

import math

import numpy as np
import pytest

from balancesim.rate_laws import RATE_LAWS, AttenuatedShannon, CqiTable1, CqiTable2, CqiTable3, Shannon
from balancesim.rate_laws.cqi import cqi_efficiency, cqi_thresholds_db, thresholds_of

LAWS = [
    Shannon(),
    *(table(thresholds) for table in (CqiTable1, CqiTable2, CqiTable3) for thresholds in ("lte", "aimm", "shannon")),
    AttenuatedShannon(0.6, 4.4),
]
#: TS 38.214 Tables 5.2.2.1-2 to -4, column "efficiency"
EFFICIENCY = {
    1: "0.1523 0.2344 0.3770 0.6016 0.8770 1.1758 1.4766 1.9141 2.4063 2.7305 3.3223 3.9023 4.5234 5.1152 5.5547",
    2: "0.1523 0.3770 0.8770 1.4766 1.9141 2.4063 2.7305 3.3223 3.9023 4.5234 5.1152 5.5547 6.2266 6.9141 7.4063",
    3: "0.0586 0.0977 0.1523 0.2344 0.3770 0.6016 0.8770 1.1758 1.4766 1.9141 2.4063 2.7305 3.3223 3.9023 4.5234",
}


def at_db(law, *sinr_db):
    return law.spectral_efficiency_bps_hz(10.0 ** (np.array(sinr_db, dtype=float) / 10.0))


def test_every_listed_law_is_tried():
    """The contract tests run over the whole list."""
    assert set(RATE_LAWS) == {type(law) for law in LAWS}


def test_shannon():
    """log2(1 + SINR): 0 at 0, 1 at 1, 10 at 1023."""
    np.testing.assert_allclose([0.0, 1.0, 10.0], Shannon().spectral_efficiency_bps_hz(np.array([0.0, 1.0, 1023.0])))


@pytest.mark.parametrize("table", [1, 2, 3])
def test_efficiencies_of_the_tables(table):
    """Qm·R/1024 of the stored tables is the standard's column of efficiencies, to its four digits."""
    expected = np.array(EFFICIENCY[table].split(), dtype=float)
    np.testing.assert_allclose(expected, cqi_efficiency(table), atol=5.01e-5)


@pytest.mark.parametrize("law", [CqiTable1(), CqiTable2(), CqiTable3()])
def test_steps_of_the_tables(law):
    """Each of the 15 thresholds lifts the efficiency to its row's; just below it the row before holds."""
    table = int(law.name[-1])
    levels, rows = thresholds_of(table, "lte"), cqi_efficiency(table)
    np.testing.assert_array_equal(rows, at_db(law, *(levels + 1e-6)))
    np.testing.assert_array_equal([0.0, *rows[:-1]], at_db(law, *(levels - 1e-6)))


def test_values_of_the_default_thresholds():
    """With the LTE set, −6.8 dB is out of range, 10 dB is CQI 8 (16QAM, 490/1024) and 30 dB CQI 15 (64QAM,
    948/1024)."""
    np.testing.assert_allclose([0.0, 4 * 490 / 1024, 6 * 948 / 1024], at_db(CqiTable1(), -6.8, 10.0, 30.0))


def test_limit_thresholds_are_shannons():
    """The set ``shannon`` holds 10 lg(2^SE − 1) of table 1 to a tenth."""
    limit = 10.0 * np.log10(2.0 ** np.array(EFFICIENCY[1].split(), dtype=float) - 1.0)
    np.testing.assert_allclose(limit, cqi_thresholds_db("shannon"), atol=0.0501)


@pytest.mark.parametrize("name", ["lte", "aimm", "shannon"])
def test_rows_shared_by_tables_share_thresholds(name):
    """Where tables have the same modulation and rate they need the same SNR, and thresholds rise with the CQI."""
    first, third = thresholds_of(1, name), thresholds_of(3, name)
    np.testing.assert_allclose(first[:13], third[2:])  # CQI 1 … 13 of table 1 are CQI 3 … 15 of table 3
    np.testing.assert_allclose(first[[0, 2, 4, 6, 13]], thresholds_of(2, name)[[0, 1, 2, 3, 10]])
    for table in (1, 2, 3):
        assert (np.diff(thresholds_of(table, name)) > 0).all()


def test_attenuated_shannon():
    """TR 36.942 Annex A downlink: 0.6·log2(1 + SINR) from −10 dB on, at most 4.4 (0.6 at 0 dB; cap from 22.1 dB)."""
    law = AttenuatedShannon(0.6, 4.4)
    expected = [0.0, 0.6 * math.log2(1.1), 0.6, 4.4]
    np.testing.assert_allclose(expected, at_db(law, -10.01, -10.0 + 1e-12, 0.0, 30.0))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.name}-{getattr(law, 'thresholds', '')}")
def test_more_signal_never_carries_less(law):
    """η is never negative, 0 without signal, finite, never falls with the SINR, and stays below Shannon's limit."""
    sinr = np.concatenate([[0.0], np.geomspace(1e-6, 1e6, 2000)])
    efficiency = law.spectral_efficiency_bps_hz(sinr)
    assert efficiency[0] == 0.0
    assert np.isfinite(efficiency).all()
    assert (np.diff(efficiency) >= 0).all()
    # the set "shannon" is rounded to a tenth of a decibel, hence 0.05 dB
    assert (efficiency <= np.log2(1.0 + sinr * 10**0.0051) + 1e-12).all()


@pytest.mark.parametrize("table", [CqiTable1, CqiTable2, CqiTable3])
def test_unknown_thresholds_list_the_choices(table):
    """An unknown set of thresholds is an error with the choices."""
    with pytest.raises(ValueError, match="thresholds must be one of aimm, lte, shannon, got 'vienna'"):
        table("vienna")


@pytest.mark.parametrize("options", [{"attenuation": 0.0, "cap_bps_hz": 1.0}, {"attenuation": 1.0, "cap_bps_hz": -1.0}])
def test_wrong_options_are_named(options):
    """Attenuation and cap must be positive."""
    with pytest.raises(ValueError, match="must be finite and positive"):
        AttenuatedShannon(**options)
