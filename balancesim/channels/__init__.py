"""Channel models: the large-scale power gain of a link: path loss, line of sight, shadowing."""

from typing import ClassVar, Protocol

import numpy as np

from balancesim.channels.fixed import Fixed
from balancesim.channels.inh import Inh
from balancesim.channels.log_distance import LogDistance
from balancesim.channels.rma import Rma
from balancesim.channels.uma import Uma
from balancesim.channels.umi import Umi
from balancesim.core.radio import RadioLinks
from balancesim.streams import Streams
from balancesim.units import BoolArray, FloatArray

__all__ = ["CHANNELS", "Channel", "Fixed", "Inh", "LogDistance", "Rma", "Uma", "Umi", "power_gain"]


class Channel(Protocol):
    """What a link loses on average. All results have one entry a link."""

    name: ClassVar[str]

    def los_probability(self, links: RadioLinks) -> FloatArray:
        """Return the probability of line of sight."""
        ...

    def pathloss_db(self, links: RadioLinks, is_los: BoolArray) -> FloatArray:
        """Return the path loss in dB, positive."""
        ...

    def shadowing_sigma_db(self, links: RadioLinks, is_los: BoolArray) -> FloatArray:
        """Return the standard deviation of log-normal shadowing in dB; 0 = none."""
        ...


#: every channel a scenario can name
CHANNELS: tuple[type[Channel], ...] = (Fixed, LogDistance, Uma, Umi, Rma, Inh)


def power_gain(channel: Channel, links: RadioLinks, streams: Streams, *, shadowing: bool) -> FloatArray:
    """Return the large-scale power gain of every link, linear: 10^(−(path loss + shadowing)/10).

    Line of sight and shadowing are drawn per user from the keyed streams ``los`` and ``shadowing``, so they depend on
    the user alone, not on how many others there are. Shadowing is not correlated between users.
    Raises ValueError for a gain that is not finite and positive, naming the user.
    """
    los, shadow = streams.keyed("los"), streams.keyed("shadowing")
    luck = np.array([los.uniforms(int(user), 1)[0] for user in links.user_id])
    is_los = luck < channel.los_probability(links)
    loss_db = channel.pathloss_db(links, is_los)
    if shadowing:
        normal = np.array([shadow.generator(int(user)).standard_normal() for user in links.user_id])
        loss_db = loss_db + channel.shadowing_sigma_db(links, is_los) * normal
    gain = 10.0 ** (-loss_db / 10.0)
    wrong = ~(np.isfinite(gain) & (gain > 0))
    if wrong.any():
        place = int(np.argmax(wrong))
        raise ValueError(
            f"radio.channel: power gain must be finite and positive, got {gain[place]} for user {links.user_id[place]} "
            f"at {links.distance_2d_m[place]:.6g} m"
        )
    return gain
