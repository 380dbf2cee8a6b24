"""What a scenario file may say: one pydantic model for each table, in the friendly units of the keys.

There are no physical defaults: a missing bandwidth is an error. Defaults are choices of method, and each says so.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from balancesim import catalog
from balancesim.scenario.settings import Area

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, le=1)]
NumberFormat = Literal["fp16", "fp8", "int8", "int4"]


def _gpu_name(name: str) -> str:
    catalog.gpu(name)
    return name


def _llm_name(name: str) -> str:
    catalog.llm(name)
    return name


GpuName = Annotated[str, AfterValidator(_gpu_name)]
LlmName = Annotated[str, AfterValidator(_llm_name)]


@dataclass(frozen=True, slots=True)
class PlugIn:
    """Marks a key whose value is a plug-in: its name, or a table of its ``kind`` and options."""

    family: str

    def __get_pydantic_json_schema__(self, _: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON Schema of all choices of the family."""
        from balancesim.scenario.json_schema import family_schema

        return family_schema(self.family)


class Table(BaseModel):
    """A table of the file: strict types, no unknown keys."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class RunTable(Table):
    """[run]: how long, how often, under which policies."""

    horizon_s: Positive = Field(description="time in s until which requests arrive")
    warmup_s: NonNegative = Field(0.0, description="start in s that is simulated but not counted; default 0")
    drain_s: Annotated[float, Field(ge=0, allow_inf_nan=True)] = Field(
        math.inf, description="longest time in s after the horizon for requests still inside; default inf"
    )
    replications: Count = Field(1, description="independent replications; default 1")
    seed: Annotated[int, Field(ge=0)] = Field(1, description="seed of all random streams; default 1")
    policies: Annotated[list[str | dict[str, Any]], Field(min_length=1)] = Field(
        ["balance", "ad_only", "sd_only"],
        description="names, file.py:Class, or {kind, label, …}; default balance, ad_only, sd_only",
    )


class RequestsTable(Table):
    """[requests]: when requests come and what they ask for."""

    arrivals: Annotated[Any, PlugIn("arrivals")] = Field(description="arrival process")
    lengths: Annotated[Any, PlugIn("lengths")] = Field(description="prompt and output tokens")
    deadline: Annotated[Any, PlugIn("deadlines")] = Field(description="end-to-end deadline from the arrival")
    acceptance_rate: Annotated[Any, PlugIn("acceptance_rates")] = Field(description="mean acceptance rate of a request")
    prediction: Annotated[Any, PlugIn("predictors")] = Field("exact", description="what policies see; default exact")
    payload_kilobytes: NonNegative = Field(0.0, description="sent beside every prompt, in kB of 1000 bytes; default 0")
    image_kilobytes: NonNegative = Field(0.0, description="an image sent beside a share of the prompts; default 0")
    image_share: Annotated[float, Field(ge=0, le=1)] = Field(0.0, description="share of prompts with it; default 0")
    context_overflow: Literal["reject", "cut"] = Field(
        "reject", description="what becomes of requests longer than the model's context; default reject"
    )
    ttft_target_s: Positive | None = Field(None, description="target of the time to first token in s; default none")
    tpot_target_s: Positive | None = Field(None, description="target of the time per output token in s; default none")


class LinkTable(Table):
    """[radio.uplink], [radio.downlink]: one direction of a cell's radio."""

    bandwidth_mhz: Positive = Field(description="bandwidth in MHz, of a request or of the cell as sharing says")
    sharing: Annotated[Any, PlugIn("allocators")] = Field(description="how requests share the bandwidth")
    power_dbm: float | None = Field(None, description="transmit power in dBm; or power_density_dbm_hz")
    power_density_dbm_hz: float | None = Field(None, description="transmit power density in dBm/Hz; or power_dbm")
    noise_figure_db: NonNegative | None = Field(
        None, description="receiver noise figure in dB over thermal noise, -174 dBm/Hz; or noise_dbm"
    )
    noise_dbm: float | None = Field(None, description="noise power in dBm, whatever the bandwidth; or noise_figure_db")


class DownlinkTable(LinkTable):
    """[radio.downlink]: as the uplink, and how answers leave."""

    delivery: Literal["at_end", "streamed"] = Field(description="answers leave when complete, or token by token")


class RadioTable(Table):
    """[radio]: propagation, rates, and both directions."""

    carrier_ghz: Positive | None = Field(None, description="carrier frequency in GHz, for channels that ask for it")
    channel: Annotated[Any, PlugIn("channels")] = Field(description="path loss, line of sight, shadowing")
    shadowing: bool = Field(description="draw shadowing where the channel has it")
    fading: Annotated[Any, PlugIn("fading")] = Field(description="fading of a block")
    coherence_ms: Positive = Field(description="length of a fading block in ms")
    rate: Annotated[Any, PlugIn("rate_laws")] = Field(description="spectral efficiency from SINR")
    bits_per_token: Positive = Field(description="bits of a token on the radio")
    uplink: LinkTable = Field(description="prompts")
    downlink: DownlinkTable = Field(description="answers")


Position = tuple[float, float]


class NetworkTable(Table):
    """[network]: cells, users, and which server each cell uses."""

    radius_m: Positive = Field(description="cell radius in m: centre to corner of its hexagon, or of its disc")
    backhaul_ms: NonNegative = Field(description="one-way delay in ms between a cell and its server")
    servers: Literal["per_cell", "one"] | list[Annotated[int, Field(ge=0)]] = Field(
        description="per_cell, one for all, or the server of each cell"
    )
    cells: Count | None = Field(None, description="number of cells on a hexagonal grid; or cell_positions_m")
    users_per_cell: Count | None = Field(None, description="users of a cell; or user_positions_m")
    layout: Literal["hex"] = Field("hex", description="sites on a hexagonal grid; default hex")
    area: Area = Field(Area.HEXAGON, strict=False, description="where users are: hexagon or disc; default hexagon")
    min_distance_m: NonNegative = Field(0.0, description="no user is nearer to its site; default 0")
    site_height_m: Positive | None = Field(None, description="antenna height of sites in m, where a channel asks")
    user_height_m: Positive | None = Field(None, description="antenna height of users in m, where a channel asks")
    cell_positions_m: list[list[float]] | None = Field(None, description="sites as [x, y] in m")
    user_positions_m: list[list[float]] | None = Field(None, description="users as [x, y] in m, in the nearest cell")


class ServerTable(Table):
    """[server]: the GPU, its models, and what their passes cost."""

    gpu: GpuName = Field(description="GPU of the catalogue")
    target: LlmName = Field(description="target model of the catalogue")
    weights: NumberFormat = Field(description="number format of the weights")
    kv: NumberFormat = Field(description="number format of the KV cache")
    utilisation: Share = Field(description="share of the GPU's memory that may be used")
    reserve_gib: NonNegative = Field(description="memory in GiB kept for activations and buffers")
    law: Annotated[Any, PlugIn("latency_laws")] = Field(description="cost law of the target")
    draft: LlmName | None = Field(None, description="draft model of the catalogue; default none")
    draft_weights: NumberFormat | None = Field(
        None, description="number format of the draft's weights; default: weights"
    )
    draft_law: Annotated[Any, PlugIn("latency_laws")] = Field(None, description="cost law of the draft; needed with it")
    draft_length: Annotated[int, Field(ge=0)] | None = Field(None, description="tokens drafted a round; needed with it")
    draft_load_gb_s: Positive | None = Field(
        None, description="rate in GB/s at which draft weights are loaded; default: no delay"
    )
    acceptance: Annotated[Any, PlugIn("acceptance")] = Field("iid", description="acceptance law; default iid")
    unlimited_memory: bool = Field(
        False, description="under the discipline pipeline: no limit of the GPU's memory; default false"
    )


class SbsTable(Table):
    """[sbs]: the small base station of each cell, which runs the draft model under the discipline pipeline."""

    gpu: GpuName = Field(description="GPU of the catalogue")
    utilisation: Share = Field(description="share of the GPU's memory that may be used")
    reserve_gib: NonNegative = Field(description="memory in GiB kept for activations and buffers")
    law: Annotated[Any, PlugIn("latency_laws")] = Field(description="cost law of the draft model on it")


class FronthaulTable(Table):
    """[fronthaul]: the link between an SBS and its server, the MBS."""

    rate_gbps: Positive = Field(description="rate in Gbit/s")
    delay_ms: Annotated[float, Field(ge=0, allow_inf_nan=True)] = Field(
        description="propagation delay in ms; inf = the fronthaul is down"
    )
    token_bits: NonNegative = Field(description="bits of a drafted or verified token")
    distribution_bits: NonNegative = Field(description="bits of a drafted token's distribution; 0 = not sent")
    queueing: bool = Field(False, description="all SBS of a server share one link, in turn; default false")


class SchedulingTable(Table):
    """[scheduling]: when the policy decides and how lanes share the GPU."""

    discipline: Annotated[Any, PlugIn("disciplines")] = Field(description="how a lane runs its requests")
    epoch_mode: Literal["periodic", "on_event"] = Field("periodic", description="when to decide; default periodic")
    epoch_ms: Positive | None = Field(None, description="period of decisions in ms; needed when periodic")
    slice_ms: NonNegative = Field(description="period of GPU time slicing in ms; 0 = fluid sharing")
    switch_ms: NonNegative = Field(description="GPU time in ms lost at each change of lane")
    work_conserving: bool = Field(True, description="an idle lane's time goes to the others; default true")
    upload: Literal["on_admission", "on_arrival"] = Field("on_admission", description="default on_admission")
    kv_growth_tokens: Count = Field(16, description="tokens by which an outgrown KV reservation grows; default 16")
    max_candidates: Count = Field(1000, description="oldest waiting requests that a policy sees; default 1000")
    abort_late: bool = Field(False, description="stop requests at their deadline; default false")


class ScenarioTable(Table):
    """A scenario."""

    description: str = Field("", description="what the scenario shows")
    run: RunTable
    requests: RequestsTable
    radio: RadioTable
    network: NetworkTable
    server: ServerTable
    scheduling: SchedulingTable
    sbs: SbsTable | None = Field(None, description="small base stations that draft for the server; default none")
    fronthaul: FronthaulTable | None = Field(None, description="their links to the server; needed with them")
    policy: dict[str, dict[str, Any]] = Field(default_factory=dict, description="options of policies, by name")
