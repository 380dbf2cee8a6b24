"""The service disciplines, by the lane model that predicts them."""

from collections.abc import Callable
from functools import partial

from balancesim.core.padded import per_user_batch
from balancesim.processes.continuous import ContinuousDiscipline
from balancesim.processes.discipline import Discipline, Host
from balancesim.processes.fused import FusedDiscipline
from balancesim.processes.pipeline import PipelineDiscipline
from balancesim.processes.static import StaticDiscipline

#: Which process runs the lanes that a lane model predicts.
DISCIPLINES: dict[str, Callable[[Host], Discipline]] = {
    "static": StaticDiscipline,
    "static_per_user": partial(StaticDiscipline, cost=per_user_batch),
    "continuous": ContinuousDiscipline,
    "fused": FusedDiscipline,
    "pipeline": PipelineDiscipline,
}
