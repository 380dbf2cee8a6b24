"""[radio]: propagation, and power, noise and bandwidth of both directions."""

from typing import Any

from balancesim import units
from balancesim.scenario.schema import LinkTable, RadioTable
from balancesim.scenario.settings import LinkSettings, RadioSettings
from balancesim.scenario.validation import Faults

#: Thermal noise density at 290 K, k·T = 1.38e-23 J/K · 290 K (the −174 dBm/Hz of model.md §2).
THERMAL_NOISE_DBM_HZ = -174.0


def radio_settings(table: RadioTable, faults: Faults, built: dict[str, Any]) -> RadioSettings | None:
    """Return the settings of the radio, or None when they have faults."""
    uplink = _link("radio.uplink", table.uplink, built, faults)
    downlink = _link("radio.downlink", table.downlink, built, faults)
    parts: list[Any] = [built.get(f"radio.{key}") for key in ("channel", "fading", "rate")]
    if uplink is None or downlink is None or None in parts or faults.any_under("radio"):
        return None
    channel, fading, rate_law = parts
    return RadioSettings(
        carrier_hz=None if table.carrier_ghz is None else table.carrier_ghz * 1e9,
        channel=channel,
        shadowing=table.shadowing,
        fading=fading,
        coherence_s=table.coherence_ms * units.MS,
        rate_law=rate_law,
        bits_per_token=table.bits_per_token,
        streamed=table.downlink.delivery == "streamed",
        uplink=uplink,
        downlink=downlink,
    )


def _link(path: str, table: LinkTable, built: dict[str, Any], faults: Faults) -> LinkSettings | None:
    _exactly_one(path, table, ("power_dbm", "power_density_dbm_hz"), faults)
    _exactly_one(path, table, ("noise_figure_db", "noise_dbm"), faults)
    if faults.any_under(path) or f"{path}.sharing" not in built:
        return None
    density_dbm_hz = None if table.noise_figure_db is None else THERMAL_NOISE_DBM_HZ + table.noise_figure_db
    return LinkSettings(
        bandwidth_hz=table.bandwidth_mhz * units.MHZ,
        allocator=built[f"{path}.sharing"],
        power_w=_watts(table.power_dbm),
        power_density_w_hz=_watts(table.power_density_dbm_hz),
        noise_w=_watts(table.noise_dbm),
        noise_density_w_hz=_watts(density_dbm_hz),
    )


def _watts(dbm: float | None) -> float:
    return 0.0 if dbm is None else float(units.dbm_to_w(dbm))


def _exactly_one(path: str, table: LinkTable, keys: tuple[str, str], faults: Faults) -> None:
    given = [key for key in keys if getattr(table, key) is not None]
    if not given:
        faults.add(f"{path}.{keys[0]}", f"is missing; or {keys[1]}")
    elif len(given) > 1:
        faults.add(f"{path}.{keys[1]}", f"must be left out when {keys[0]} is given")
