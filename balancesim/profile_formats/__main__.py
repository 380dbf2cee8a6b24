"""Convert measurements into a canonical table.

Each part is given as FORMAT:FILE or FORMAT:FILE*RATIO; formats: vidur, llmservingsim, aiconfigurator. With *RATIO the
part is borrowed from another GPU: what exceeds its launch time is multiplied by RATIO.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np

from balancesim import catalog
from balancesim.profile_formats import canonical, vidur
from balancesim.profile_formats.canonical import DERIVED, MEASURED, Part
from balancesim.profile_formats.points import Line, Shape
from balancesim.profile_formats.rescale import borrowed, less_bandwidth
from balancesim.profiles.table import AXES, Row, table_from_rows
from balancesim.units import FloatArray

FORMATS = ("vidur", "llmservingsim", "aiconfigurator")
#: latency of one message between two GPUs of a node (aiconfigurator `p2p_latency`)
P2P_LATENCY_S = 1e-5


@dataclass(frozen=True, slots=True)
class Source:
    """One part's source as given on the command line."""

    module: ModuleType
    path: Path
    ratio: float | None

    @classmethod
    def parse(cls, text: str) -> "Source":
        """Read ``FORMAT:FILE[*RATIO]``."""
        kind, _, rest = text.partition(":")
        file, _, ratio = rest.partition("*")
        if kind not in FORMATS or not file:
            raise argparse.ArgumentTypeError(f"must be FORMAT:FILE with a format of {', '.join(FORMATS)}, got {text!r}")
        return cls(import_module(f"balancesim.profile_formats.{kind}"), Path(file), float(ratio) if ratio else None)

    def part(self, what: str, shape: Shape) -> object:
        """Return the measured points of one part."""
        reader = getattr(self.module, what, None)
        if reader is None:
            raise ValueError(f"{what}: the format {self.module.__name__.rpartition('.')[2]} has no such part")
        return reader(self.path, shape)

    def scaled(self, part: Part) -> Part:
        """Apply the ratio."""
        return part if self.ratio is None else borrowed(part, self.ratio)


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(prog="python -m balancesim.profile_formats", description=__doc__)
    parser.add_argument("--model", required=True, help="model of the table, by its name in `balancesim list models`")
    for part in ("dense", "decode", "prefill", "head"):
        parser.add_argument(f"--{part}", required=True, type=Source.parse, help="FORMAT:FILE[*RATIO]")
    parser.add_argument("--elementwise", type=Source.parse, help="vidur:FILE: norms, activations, … added to dense")
    parser.add_argument(
        "--measured-model", help="model that the dense, head and elementwise files measured, if another"
    )
    parser.add_argument("--overhead-s", type=float, help="host time of a pass, seconds")
    parser.add_argument("--bandwidth-ratio", type=float, help="bandwidth measured / bandwidth of this card, at least 1")
    parser.add_argument("--tensor-parallel", type=int, default=1, help="GPUs that share each layer")
    parser.add_argument("--link-gb-s", type=float, help="bandwidth between those GPUs, one way")
    parser.add_argument("--note", action="append", default=[], help="comment line of the table; repeat for more")
    parser.add_argument("--out", required=True, type=Path, help="CSV file to write")
    return parser.parse_args(argv)


def parts(options: argparse.Namespace) -> dict[str, Part]:
    """Return all parts of the table, monotone."""
    measured = catalog.llm(options.measured_model) if options.measured_model else None
    shape = Shape(catalog.llm(options.model), options.tensor_parallel, measured)
    decode_points = options.decode.part("decode", shape)
    decode = canonical.decode(decode_points).smoothed()
    # Smoothed before they are rescaled: only then is it known which nodes were measured.
    table = {
        "dense": options.dense.scaled(canonical.line(_dense(options, shape)).smoothed()),
        "attention_decode": options.decode.scaled(decode),
        "attention_prefill": options.prefill.scaled(
            canonical.prefill(options.prefill.part("prefill", shape), _step_of(decode)).smoothed()
        ),
        "head": options.head.scaled(canonical.line(options.head.part("head", shape)).smoothed()),
    }
    if options.bandwidth_ratio is not None:
        table = {name: less_bandwidth(part, options.bandwidth_ratio, name) for name, part in table.items()}
    if options.overhead_s is not None:
        nodes = decode.first[[0, -1]]
        table["overhead"] = Part(nodes, None, np.full(2, options.overhead_s), np.ones(2, dtype=bool))
    return table


def _dense(options: argparse.Namespace, shape: Shape) -> Line:
    points: Line = options.dense.part("dense", shape)
    seconds = points.seconds
    if options.elementwise is not None:
        added = vidur.elementwise(options.elementwise.path, replace(shape, tensor_parallel=1))
        seconds = seconds + canonical.extended(points.x, added.x, added.seconds)
    if shape.tensor_parallel > 1:
        if options.link_gb_s is None:
            raise ValueError("--link-gb-s must be given with --tensor-parallel: the all-reduce is part of a layer")
        seconds = seconds + all_reduce_s(points.x, shape, options.link_gb_s * 1e9)
    return Line(points.x, seconds)


def all_reduce_s(tokens: FloatArray, shape: Shape, link_bytes_s: float) -> FloatArray:
    """Return the two ring all-reduces of one layer: 2·(latency + 2·(p−1)/p · n·h·2 B / link)."""
    share = (shape.tensor_parallel - 1) / shape.tensor_parallel
    seconds: FloatArray = 2 * (P2P_LATENCY_S + 2 * share * tokens * shape.llm.hidden * 2 / link_bytes_s)
    return seconds


def _step_of(decode: Part) -> canonical.DecodeTime:
    assert decode.second is not None
    kv, row = decode.second, decode.seconds[0]

    def step_s(_sequences: float, context: float) -> float:
        return float(canonical.extended(np.array([context]), kv, row)[0])

    return step_s


def rows_of(table: dict[str, Part]) -> list[tuple[Row, str]]:
    """Return the rows of the table with their origin, times to six digits, in the order of the file."""
    rows = []
    for name in (name for name in AXES if name in table):
        part = table[name]
        for index, seconds in np.ndenumerate(part.seconds):
            y = math.nan if part.second is None else float(part.second[index[1]])
            origin = MEASURED if part.measured[index] else DERIVED
            rows.append(((name, float(part.first[index[0]]), y, float(f"{seconds:.6g}")), origin))
    return rows


def csv_text(rows: list[tuple[Row, str]], notes: Sequence[str]) -> str:
    """Return the canonical CSV file."""
    lines = [f"# {note}" for note in notes] + ["part,x,y,seconds,origin"]
    for (name, x, y, seconds), origin in rows:
        lines.append(f"{name},{x:.17g},{'' if math.isnan(y) else f'{y:.17g}'},{seconds:.6g},{origin}")
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Convert; return 0, or 1 after one line that says what is wrong."""
    options = arguments(argv)
    try:
        rows = rows_of(parts(options))
        table_from_rows(options.out.stem, (row for row, _ in rows))
    except (ValueError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    options.out.write_text(csv_text(rows, [f"model: {options.model}", *options.note]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
