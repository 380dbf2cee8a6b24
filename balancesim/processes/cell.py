"""A cell seen from its server: prompts go up, answers come down, the backhaul delays both."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import simpy

from balancesim.processes.visit import Visit
from balancesim.units import FloatArray, IntArray


class Link(Protocol):
    """One direction of a cell's radio, as `processes.links` provides it."""

    def send(
        self, transfer_id: int, user_id: int, bits: float, done: Callable[[], None], weight: float | None = None
    ) -> None:
        """Start a transfer; ``done`` is called when its last bit is through. ``weight``: its part of a shared band."""
        ...

    def cancel(self, transfer_id: int) -> None:
        """Give a transfer up."""
        ...

    def predicted_s(self, user_ids: IntArray, bits: FloatArray) -> FloatArray:
        """Return transfer times at the rates of the present block; inf in outage."""
        ...

    def time_s(self, user_id: int, bits: float) -> float:
        """Return the time of one transfer, as `predicted_s` does of many."""
        ...

    def spectral_efficiency(self, user_ids: IntArray) -> FloatArray:
        """Return η of the users in the present block."""
        ...

    def sinr(self, user_id: int) -> float:
        """Return the linear SINR of a user in the present block."""
        ...


@dataclass(frozen=True)
class Cell:
    """Links of one cell and what a token weighs on them."""

    cell_id: int
    uplink: Link
    downlink: Link
    backhaul_s: float
    bits_per_token: float
    streamed: bool  #: answers leave token by token, else when they are complete

    def prompt_bits(self, visit: Visit) -> float:
        """Bits of a prompt: tokens · bits_per_token + payload (model.md §2)."""
        return visit.request.prompt_tokens * self.bits_per_token + visit.request.payload_bits

    def answer_bits(self, tokens: int) -> float:
        """Bits whose transfer ends the answer: all of it, or the last token when it is streamed."""
        return (1 if self.streamed else tokens) * self.bits_per_token


@dataclass
class Uploads:
    """The uplinks of all cells of one server (`discipline.UploadPort`)."""

    env: simpy.Environment
    cells: dict[int, Cell]
    _ends: dict[int, float] = field(default_factory=dict)  #: predicted end of uploads under way, by request id

    def start(self, visit: Visit, done: Callable[[Visit], None]) -> None:
        """Begin the upload now; ``done`` is called when the prompt is at the server."""
        cell, request = self.cells[visit.cell_id], visit.request
        now_s, bits = self.env.now, cell.prompt_bits(visit)
        visit.upload_start_s = now_s
        visit.uplink_sinr = cell.uplink.sinr(request.user_id)
        own_s = cell.uplink.time_s(request.user_id, bits) + cell.backhaul_s
        self._ends[request.request_id] = now_s + own_s

        def at_server() -> None:
            if self._ends.pop(request.request_id, None) is not None:
                visit.upload_end_s = self.env.now
                done(visit)

        uploaded = delayed(self.env, cell.backhaul_s, at_server)
        cell.uplink.send(request.request_id, request.user_id, bits, uploaded, visit.bandwidth_weight)

    def cancel(self, visit: Visit) -> None:
        """Give the upload up."""
        if self._ends.pop(visit.request.request_id, None) is not None:
            self.cells[visit.cell_id].uplink.cancel(visit.request.request_id)

    def left_s(self, visit: Visit) -> float:
        """Return the rest of an upload under way, as predicted when it began."""
        return max(0.0, self._ends[visit.request.request_id] - self.env.now)

    def predicted_s(self, cell_id: IntArray, user_id: IntArray, bits: FloatArray) -> FloatArray:
        """Return the times of uploads that would start now, backhaul included."""
        times_s = np.empty(len(bits))
        for cell, rows in by_cell(self.cells, cell_id):
            times_s[rows] = cell.uplink.predicted_s(user_id[rows], bits[rows]) + cell.backhaul_s
        return times_s

    def spectral_efficiency(self, cell_id: IntArray, user_id: IntArray) -> FloatArray:
        """Return η of users' uplinks now."""
        efficiency = np.empty(len(user_id))
        for cell, rows in by_cell(self.cells, cell_id):
            efficiency[rows] = cell.uplink.spectral_efficiency(user_id[rows])
        return efficiency


@dataclass(frozen=True)
class Answers:
    """The downlinks of all cells of one server.

    A streamed answer is two transfers: its first token when the server has it, and at its end the last token together
    with what the link could not have carried in the meantime [A: the rate at the end stands for the whole stream].
    """

    env: simpy.Environment
    cells: dict[int, Cell]
    received: Callable[[Visit], None]  #: the user has the whole answer

    def predicted_s(self, cell_id: IntArray, user_id: IntArray, bits: FloatArray) -> FloatArray:
        """Return t_down of answers of so many bits that would leave now, backhaul included."""
        times_s = np.empty(len(bits))
        for cell, rows in by_cell(self.cells, cell_id):
            times_s[rows] = cell.downlink.predicted_s(user_id[rows], bits[rows]) + cell.backhaul_s
        return times_s

    def downlink_s(self, visit: Visit) -> float:
        """Return t_down of one visit's answer of the predicted length."""
        cell, request = self.cells[visit.cell_id], visit.request
        bits = cell.answer_bits(request.predicted_output_tokens)
        return cell.downlink.time_s(request.user_id, bits) + cell.backhaul_s

    def first_token(self, visit: Visit) -> None:
        """Send the first token on its way where answers are streamed."""
        visit.server_first_token_s = self.env.now
        cell = self.cells[visit.cell_id]
        if cell.streamed and visit.request.output_tokens > 1:
            visit.downlink_sinr = cell.downlink.sinr(visit.request.user_id)

            def arrived() -> None:
                visit.user_first_token_s = self.env.now + cell.backhaul_s

            cell.downlink.send(2 * visit.request.request_id, visit.request.user_id, cell.bits_per_token, arrived)

    def last_token(self, visit: Visit) -> None:
        """Send the (rest of the) answer."""
        cell, user_id = self.cells[visit.cell_id], visit.request.user_id
        if visit.downlink_sinr is None:
            visit.downlink_sinr = cell.downlink.sinr(user_id)
        bits = visit.tokens_out * cell.bits_per_token
        if cell.streamed:
            since = visit.server_first_token_s if visit.server_first_token_s is not None else self.env.now
            whole_s = cell.downlink.time_s(user_id, bits)
            sent = (self.env.now - since) / whole_s if whole_s > 0 else 1.0
            bits = max(cell.bits_per_token, bits * (1.0 - sent))

        def at_user() -> None:
            visit.user_last_token_s = self.env.now
            if visit.user_first_token_s is None:  # an answer sent whole is read when it is complete
                visit.user_first_token_s = self.env.now
            self.received(visit)

        arrived = delayed(self.env, cell.backhaul_s, at_user)
        cell.downlink.send(2 * visit.request.request_id + 1, user_id, bits, arrived)


def delayed(env: simpy.Environment, delay_s: float, then: Callable[[], None]) -> Callable[[], None]:
    """Return what calls ``then`` after a delay; ``then`` itself where there is none."""
    if delay_s <= 0:
        return then
    return lambda: env.timeout(delay_s).callbacks.append(lambda _: then())


def by_cell(cells: dict[int, Cell], cell_id: IntArray) -> list[tuple[Cell, IntArray | slice]]:
    """Return the cells named in a column with the rows of each."""
    if len(cells) == 1:
        return [(cell, slice(None)) for cell in cells.values()]
    return [(cells[number], np.flatnonzero(cell_id == number)) for number in np.unique(cell_id).tolist()]
