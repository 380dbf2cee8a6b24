"""The static study of Zhu et al. (arXiv 2510.11331 v1, called [P2]): world, undeclared constants, comparisons.

Declared by [P2]: K = 100 tasks, radius 400 m, 20 MHz uplink, 0.2 W, noise −106 dBm, SBS with 16 GB (RTX 3080), MBS with
an RTX 4500, l_max = 10, inputs 1–512, outputs 1–2048 tokens, α = 0.8. Assumed [A]: lengths uniform, users uniform on
the disk from 10 m on, fp16, no MBS memory check (13B in fp16 does not fit 24 GB), no fronthaul time (as [P2]).
"""

import math
from dataclasses import dataclass, field

import numpy as np

from balancesim.catalog import llm
from balancesim.core.gpu import GpuSpec
from balancesim.core.llm import LlmSpec
from balancesim.core.pipeline_instance import PipelineInstance, PipelineTasks
from balancesim.core.pipeline_nodes import PipelineNode
from balancesim.latency_laws import Affine
from balancesim.streams import Streams
from balancesim.units import FloatArray, dbm_to_w

#: RTX 3080 with 16 GB: the laptop chip (6,144 cores, 448 GB/s, public GPU tables); the desktop card has 10 or 12 GB.
#: Tensor peak with fp32 accumulation: twice the 16.8 TFLOPS of fp32 at 1,365 MHz, the GeForce ratio [A]
SBS_GPU = GpuSpec("RTX 3080 16GB", 33.5e12, 448e9, 16e9)
#: RTX 4500 Ada: 24 GB, 432 GB/s, 39.63 TFLOPS fp32 (public GPU tables); dense tensor peak four times that, the ratio
#: of the professional Ada cards [A]
MBS_GPU = GpuSpec("RTX 4500 Ada", 158.5e12, 432e9, 24e9)
PAIRS = {
    "68M/7B": ("Llama-68M", "Llama-2-7B"),
    "1.1B/7B": ("TinyLlama-1.1B", "Llama-2-7B"),
    "1.1B/13B": ("TinyLlama-1.1B", "Llama-2-13B"),
}
RADIUS_M, CLOSEST_M = 400.0, 10.0
POWER_W, NOISE_DBM = 0.2, -106.0
#: path loss in dB, intercept at 1 km and slope per decade. 3GPP TR 36.814 table B.1.2.1 (macro, and pico/outdoor
#: hotzone): the two forms most used for MBS and SBS at 2 GHz [A]
PATH_LOSSES = {"macro": (128.1, 37.6), "pico": (140.7, 36.7)}


@dataclass(frozen=True)
class Constants:
    """What [P2] does not declare; found by `fit_pipeline` inside its ranges.

    The affine law T = c1·FLOPs + c2 of a model on a node: c1 = 1/(efficiency·peak), c2 = weight_factor·(streamed
    weights/bandwidth) + layer_s·layers. Efficiency and factor belong to a node, so two numbers serve both its models.
    """

    bits_per_token: float  #: D_k = bits_per_token·I_k
    sbs_efficiency: float
    sbs_weight_factor: float
    mbs_efficiency: float
    mbs_weight_factor: float
    layer_s: float  #: launches and host work of one layer
    path_loss: str = "macro"
    rayleigh: bool = False


@dataclass(frozen=True)
class Setting:
    """One point of a sweep."""

    pair: str
    tasks: int = 100
    max_input: int = 512
    max_output: int = 2048
    acceptance_rate: float = 0.8
    bandwidth_hz: float = 20e6
    max_draft_length: int = 10


def affine(model: LlmSpec, gpu: GpuSpec, efficiency: float, weight_factor: float, layer_s: float) -> Affine:
    """Return the affine law of one model on one node from the constants."""
    streaming = model.streamed_weight_bytes / gpu.bandwidth_bytes_s
    return Affine(1.0 / (efficiency * gpu.peak_flops), weight_factor * streaming + layer_s * model.layers)


def nodes(constants: Constants, pair: str) -> tuple[PipelineNode, PipelineNode]:
    """Return the SBS with the draft and the MBS with the target of a pair."""
    draft, target = (llm(name) for name in PAIRS[pair])
    c = constants
    return (
        PipelineNode(draft, SBS_GPU, affine(draft, SBS_GPU, c.sbs_efficiency, c.sbs_weight_factor, c.layer_s), 16e9),
        PipelineNode(target, MBS_GPU, affine(target, MBS_GPU, c.mbs_efficiency, c.mbs_weight_factor, c.layer_s)),
    )


def spectral_efficiencies(constants: Constants, count: int, streams: Streams) -> FloatArray:
    """Return η_k = log2(1 + p·g_k/σ²) of users uniform on the disk, with one Rayleigh power each if asked."""
    share = streams.sequential("placement").random(count)
    distance_m = np.sqrt(CLOSEST_M**2 + share * (RADIUS_M**2 - CLOSEST_M**2))
    intercept_db, slope_db = PATH_LOSSES[constants.path_loss]
    gain = 10 ** (-(intercept_db + slope_db * np.log10(distance_m * 1e-3)) / 10)
    if constants.rayleigh:
        gain = gain * streams.sequential("fading").exponential(size=count)
    return np.asarray(np.log2(1 + POWER_W * gain / float(dbm_to_w(NOISE_DBM))))


def instance(constants: Constants, setting: Setting, replication: int) -> PipelineInstance:
    """Return the joint problem of one replication: the same users and length ranks in every setting and pair."""
    streams = Streams(1, replication)
    ranks = streams.sequential("lengths").random((setting.tasks, 2))
    prompts = 1 + np.floor(ranks[:, 0] * setting.max_input).astype(np.int64)
    tasks = PipelineTasks(
        prompt_tokens=prompts,
        output_tokens=1 + np.floor(ranks[:, 1] * setting.max_output).astype(np.int64),
        acceptance_rate=np.full(setting.tasks, setting.acceptance_rate),
        upload_bits=constants.bits_per_token * prompts.astype(np.float64),
        spectral_efficiency_bps_hz=spectral_efficiencies(constants, setting.tasks, streams),
    )
    draft, target = nodes(constants, setting.pair)
    return PipelineInstance(tasks, draft, target, setting.bandwidth_hz, setting.max_draft_length)


@dataclass(frozen=True)
class Comparison:
    """One statement of [P2]: the proposal's total latency is ``paper_percent`` below a baseline's."""

    figure: str
    x: str
    baseline: str  #: key of `pipeline_plans.BASELINES`
    setting: Setting
    paper_percent: float  #: NaN: only the sign is stated


@dataclass(frozen=True)
class Comparisons:
    """The statements of [P2]; those that name no pair are taken for ``pair`` [A]."""

    pair: str = "1.1B/7B"
    alphas: tuple[float, ...] = (0.6, 0.7, 0.8, 0.9)  #: [A]: the range is not known
    items: tuple[Comparison, ...] = field(init=False)

    def __post_init__(self) -> None:
        uniform = [
            Comparison("bandwidth", "25", "uniform_bandwidth", Setting(pair, bandwidth_hz=25e6), paper)
            for pair, paper in zip(PAIRS, (44.9, 29.3, 25.2), strict=True)
        ]
        single = Setting(self.pair)
        shorter = Setting(self.pair, max_output=1792)
        fewer = Setting(self.pair, tasks=90)
        stated = [
            Comparison("input length", "512", "without_pipeline", single, 31.6),
            Comparison("output length", "1792", "without_pipeline", shorter, 30.7),
            Comparison("tasks", "90", "maximum_batching", fewer, 21.4),
            # where these two were read off is not known: taken at the ends of the two length sweeps [A]
            Comparison("input length", "512", "heuristic_batching", single, 19.6),
            Comparison("output length", "1792", "heuristic_batching", shorter, 20.5),
        ]
        signs = [
            Comparison("acceptance", f"{alpha}", "autoregressive", Setting(pair, acceptance_rate=alpha), math.nan)
            for pair in PAIRS
            for alpha in self.alphas
        ]
        object.__setattr__(self, "items", (*uniform, *stated, *signs))
