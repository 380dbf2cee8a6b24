"""The columns of the result tables, each declared once: name, type, unit and meaning.

A row is a NamedTuple with one field a column, so a missing or an extra column is a type error where the row is made.
``Annotated`` carries what the annotation cannot say; ``docs/results.md`` is checked against it. SI units; null stands
for "did not happen", never 0 or −1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Annotated, NamedTuple, get_args, get_type_hints

from balancesim.core.request import Mode, Outcome, RejectReason


class Kind(StrEnum):
    """Storage type of a column, named as Arrow names it."""

    INT64 = "int64"
    INT32 = "int32"
    FLOAT64 = "float64"
    BOOL = "bool"
    CATEGORY = "dictionary<string>"
    INT32_LIST = "list<int32>"
    FLOAT64_LIST = "list<float64>"
    STRING_LIST = "list<string>"


@dataclass(frozen=True, slots=True)
class Col:
    """What a row's annotation adds to the Python type."""

    kind: Kind
    meaning: str
    unit: str = ""
    choices: tuple[str, ...] = ()  #: fixed categories; empty = in order of appearance


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    kind: Kind
    meaning: str
    unit: str
    choices: tuple[str, ...]
    nullable: bool


class RequestRow(NamedTuple):
    """One generated request, whatever became of it (model.md §10). Rows are in the order in which outcomes fell."""

    request_id: Annotated[int, Col(Kind.INT64, "number in order of arrival, unique within a replication")]
    user_id: Annotated[int, Col(Kind.INT64, "user that sent it")]
    cell_id: Annotated[int, Col(Kind.INT32, "cell that the user is attached to")]
    server_id: Annotated[int, Col(Kind.INT32, "edge server that it was sent to")]
    task: Annotated[str, Col(Kind.CATEGORY, "kind of task named by the trace or workload; empty = unnamed")]
    prompt_tokens: Annotated[int, Col(Kind.INT32, "s: tokens of the prompt", "tokens")]
    output_tokens: Annotated[int, Col(Kind.INT32, "n: true tokens of the answer", "tokens")]
    predicted_output_tokens: Annotated[int, Col(Kind.INT32, "n as the policy saw it", "tokens")]
    acceptance_rate: Annotated[float, Col(Kind.FLOAT64, "α: true chance that a drafted token is kept", "1")]
    predicted_acceptance_rate: Annotated[float, Col(Kind.FLOAT64, "α as the policy saw it", "1")]
    payload_bits: Annotated[float, Col(Kind.FLOAT64, "image or audio sent beside the prompt's tokens", "bit")]
    deadline_s: Annotated[float, Col(Kind.FLOAT64, "T: latest useful answer, from the arrival; inf = none", "s")]
    mode: Annotated[Mode | None, Col(Kind.CATEGORY, "how it was decoded; null = not admitted", "", tuple(Mode))]
    lane_id: Annotated[int | None, Col(Kind.INT32, "lane that it was admitted to")]
    draft_length: Annotated[int | None, Col(Kind.INT32, "γ of its lane; 0 under AD", "tokens")]
    outcome: Annotated[Outcome, Col(Kind.CATEGORY, "what became of it", "", tuple(Outcome))]
    reject_reason: Annotated[
        RejectReason | None, Col(Kind.CATEGORY, "why it was rejected; null = it was not", "", tuple(RejectReason))
    ]
    arrival_s: Annotated[float, Col(Kind.FLOAT64, "t_arr: the user sends it", "s")]
    upload_start_s: Annotated[float | None, Col(Kind.FLOAT64, "t_us: its first bit goes up", "s")]
    upload_end_s: Annotated[float | None, Col(Kind.FLOAT64, "t_ue: its prompt is in", "s")]
    admitted_s: Annotated[float | None, Col(Kind.FLOAT64, "t_adm: epoch at which the policy admitted it", "s")]
    prefill_start_s: Annotated[float | None, Col(Kind.FLOAT64, "t_pf: its (first) prefill pass begins", "s")]
    server_first_token_s: Annotated[float | None, Col(Kind.FLOAT64, "t_s1: the server has token 1", "s")]
    server_last_token_s: Annotated[float | None, Col(Kind.FLOAT64, "t_sn: the server has its last token", "s")]
    user_first_token_s: Annotated[float | None, Col(Kind.FLOAT64, "t_u1: token 1 has reached the user", "s")]
    user_last_token_s: Annotated[float | None, Col(Kind.FLOAT64, "t_un: the whole answer has reached the user", "s")]
    tokens_out: Annotated[int, Col(Kind.INT32, "tokens that the server emitted for it", "tokens")]
    draft_rounds: Annotated[int, Col(Kind.INT32, "speculative rounds; 0 under AD")]
    drafted_tokens: Annotated[int, Col(Kind.INT32, "tokens proposed by the draft model", "tokens")]
    accepted_tokens: Annotated[
        int, Col(Kind.INT32, "proposed tokens that were kept, corrections and bonus tokens not counted", "tokens")
    ]
    truncated: Annotated[bool, Col(Kind.BOOL, "the answer was cut at the reserved length; counted late")]
    preemptions: Annotated[int, Col(Kind.INT32, "times its KV cache was dropped and computed again")]
    cached_tokens: Annotated[int, Col(Kind.INT32, "tokens of its prompt that the prefix cache had", "tokens")]
    uplink_sinr: Annotated[
        float | None, Col(Kind.FLOAT64, "linear SINR of the uplink in the block in which its upload began", "1")
    ]
    downlink_sinr: Annotated[
        float | None, Col(Kind.FLOAT64, "linear SINR of the downlink in the block in which its answer began", "1")
    ]


class EpochRow(NamedTuple):
    """One decision of one server's policy. Written when its measured completion is known, so not in order of time."""

    server_id: Annotated[int, Col(Kind.INT32, "edge server")]
    epoch: Annotated[int, Col(Kind.INT64, "number of the epoch at this server, from 0")]
    epoch_s: Annotated[float, Col(Kind.FLOAT64, "time of the decision", "s")]
    candidates: Annotated[int, Col(Kind.INT32, "waiting requests that the policy saw")]
    residents: Annotated[int, Col(Kind.INT32, "requests admitted before and still inside")]
    rejected: Annotated[int, Col(Kind.INT32, "candidates that the policy rejected")]
    admitted: Annotated[int, Col(Kind.INT32, "candidates admitted, all lanes")]
    admitted_ad: Annotated[int, Col(Kind.INT32, "candidates admitted to AD lanes")]
    admitted_sd: Annotated[int, Col(Kind.INT32, "candidates admitted to SD lanes")]
    gpu_share_ad: Annotated[float | None, Col(Kind.FLOAT64, "z: GPU share of the AD lanes; null = no lanes", "1")]
    memory_share_ad: Annotated[
        float | None, Col(Kind.FLOAT64, "λ: share of the free memory of the AD lanes; null = no lanes", "1")
    ]
    lane_id: Annotated[tuple[int, ...], Col(Kind.INT32_LIST, "lanes of the decision")]
    lane_mode: Annotated[tuple[Mode, ...], Col(Kind.STRING_LIST, "mode of each lane")]
    lane_gpu_share: Annotated[tuple[float, ...], Col(Kind.FLOAT64_LIST, "GPU share of each lane", "1")]
    lane_memory_share: Annotated[tuple[float, ...], Col(Kind.FLOAT64_LIST, "memory share of each lane", "1")]
    lane_admitted: Annotated[tuple[int, ...], Col(Kind.INT32_LIST, "candidates admitted to each lane")]
    kv_used_bytes: Annotated[float, Col(Kind.FLOAT64, "KV memory reserved just after the decision", "byte")]
    kv_peak_bytes: Annotated[float, Col(Kind.FLOAT64, "most KV memory reserved from this decision to the next", "byte")]
    kv_capacity_bytes: Annotated[
        float, Col(Kind.FLOAT64, "memory free for KV caches under the weights then loaded", "byte")
    ]
    predicted_finish_s: Annotated[
        float | None,
        Col(
            Kind.FLOAT64,
            "epoch to the last token of the requests admitted, as predicted; null = none, unpredicted",
            "s",
        ),
    ]
    measured_finish_s: Annotated[
        float | None, Col(Kind.FLOAT64, "epoch to the last token of the requests admitted, as it happened", "s")
    ]


class GpuRow(NamedTuple):
    """One span of a lane between two changes of its batch or of the shares; GPU seconds are those of its own work."""

    server_id: Annotated[int, Col(Kind.INT32, "edge server")]
    lane_id: Annotated[int, Col(Kind.INT32, "lane")]
    mode: Annotated[Mode, Col(Kind.CATEGORY, "mode of the lane", "", tuple(Mode))]
    start_s: Annotated[float, Col(Kind.FLOAT64, "begin of the span", "s")]
    end_s: Annotated[float, Col(Kind.FLOAT64, "end of the span", "s")]
    steps: Annotated[int, Col(Kind.INT64, "decode steps or speculative rounds in it")]
    batch_size: Annotated[int, Col(Kind.INT32, "requests in the batch")]
    tokens: Annotated[int, Col(Kind.INT64, "tokens emitted in it", "tokens")]
    prefill_s: Annotated[float, Col(Kind.FLOAT64, "GPU time of prefill passes, target and draft", "s")]
    decode_s: Annotated[float, Col(Kind.FLOAT64, "GPU time of AD decode steps", "s")]
    draft_s: Annotated[float, Col(Kind.FLOAT64, "GPU time of draft passes", "s")]
    verify_s: Annotated[float, Col(Kind.FLOAT64, "GPU time of verification passes", "s")]
    switch_s: Annotated[float, Col(Kind.FLOAT64, "GPU time lost to switching to this lane, not in the others", "s")]


Row = RequestRow | EpochRow | GpuRow

#: The tables of a run. ``policy`` and ``replication`` are not stored: they are hive partitions of the path.
TABLES: Mapping[str, type[Row]] = {"requests": RequestRow, "epochs": EpochRow, "gpu": GpuRow}


@cache
def table_columns(table: str) -> tuple[Column, ...]:
    """Return the columns of a table, in order."""
    row_type = TABLES[table]
    hints = get_type_hints(row_type, include_extras=True)
    columns: list[Column] = []
    for name in row_type._fields:
        python_type, col = get_args(hints[name])
        choices = tuple(str(choice) for choice in col.choices)
        columns.append(Column(name, col.kind, col.meaning, col.unit, choices, type(None) in get_args(python_type)))
    return tuple(columns)


def markdown_table(table: str) -> str:
    """Return the columns of a table as the Markdown table of docs/results.md."""
    lines = ["| column | type | unit | meaning |", "| --- | --- | --- | --- |"]
    for column in table_columns(table):
        kind = f"`{column.kind.value}`{', null' if column.nullable else ''}"
        choices = f": {', '.join(f'`{choice}`' for choice in column.choices)}" if column.choices else ""
        lines.append(f"| `{column.name}` | {kind} | {column.unit} | {column.meaning}{choices} |")
    return "\n".join(lines)
