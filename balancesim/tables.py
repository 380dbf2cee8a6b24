"""Rows to Arrow tables.

Arrays are laid out with numpy and handed to Arrow as buffers, because ``pyarrow.array`` imports pandas at its first use
and a run needs no pandas. pyarrow itself is loaded when the first table is made.
"""

import json
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from balancesim.columns import Column, Kind, Row, table_columns
from balancesim.units import BoolArray, FloatArray

if TYPE_CHECKING:
    import pyarrow as pa

#: What pandas shall make of a column that would otherwise depend on whether a null is among the values.
_PANDAS_INTEGERS = {Kind.INT32: "Int32", Kind.INT64: "Int64"}

Items = tuple[object, ...]


@cache
def arrow_schema(table: str) -> "pa.Schema":
    """Return the Arrow schema of a table; it tells pandas to read nullable counts as Int32, not as floats."""
    import pyarrow as pa

    types = {
        Kind.INT64: pa.int64(),
        Kind.INT32: pa.int32(),
        Kind.FLOAT64: pa.float64(),
        Kind.BOOL: pa.bool_(),
        Kind.CATEGORY: pa.dictionary(pa.int32(), pa.string()),
        Kind.INT32_LIST: pa.list_(pa.int32()),
        Kind.FLOAT64_LIST: pa.list_(pa.float64()),
        Kind.STRING_LIST: pa.list_(pa.string()),
    }
    columns = table_columns(table)
    fields = [pa.field(column.name, types[column.kind], nullable=column.nullable) for column in columns]
    hints = [_pandas_hint(column) for column in columns if column.nullable and column.kind in _PANDAS_INTEGERS]
    metadata = {"columns": hints, "index_columns": [], "column_indexes": []}
    return pa.schema(fields, metadata={"pandas": json.dumps(metadata, sort_keys=True)})


def _pandas_hint(column: Column) -> dict[str, str | None]:
    names: dict[str, str | None] = {"name": column.name, "field_name": column.name, "metadata": None}
    return names | {"pandas_type": column.kind.value, "numpy_type": _PANDAS_INTEGERS[column.kind]}


def arrow_table(table: str, rows: Sequence[Row]) -> "pa.Table":
    """Return rows as an Arrow table with the table's schema.

    Raises ValueError, TypeError or KeyError where a column that is never null holds None or NaN; mypy refuses most.
    """
    import pyarrow as pa

    columns = table_columns(table)
    values: list[Items] = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    arrays = [_array(column, items) for column, items in zip(columns, values, strict=True)]
    return pa.Table.from_arrays(arrays, schema=arrow_schema(table))


def _array(column: Column, items: Items) -> "pa.Array":
    match column.kind:
        case Kind.CATEGORY:
            return _categories(column, items)
        case Kind.INT32_LIST | Kind.FLOAT64_LIST | Kind.STRING_LIST:
            return _lists(column.kind, items)
    if column.kind is Kind.FLOAT64:
        data = np.array(items, np.float64)  # None becomes NaN
        missing = np.isnan(data)
        if not column.nullable and missing.any():
            raise ValueError(f"column {column.name} must never be null, got none or NaN in row {np.argmax(missing)}")
        return _numbers(column.kind, np.where(missing, 0.0, data), ~missing)
    return _integers(column.kind, items) if column.nullable else _numbers(column.kind, items)


def _integers(kind: Kind, items: Items) -> "pa.Array":
    data = np.array(items, np.float64)  # None becomes NaN; counts are far below 2^53
    missing = np.isnan(data)
    return _numbers(kind, np.where(missing, 0.0, data), ~missing)


def _numbers(kind: Kind, items: "Items | FloatArray", present: BoolArray | None = None) -> "pa.Array":
    import pyarrow as pa

    data = np.asarray(items, dtype=kind.value)
    arrow_type = {Kind.INT64: pa.int64, Kind.INT32: pa.int32, Kind.FLOAT64: pa.float64, Kind.BOOL: pa.bool_}[kind]()
    buffer = pa.py_buffer(np.packbits(data, bitorder="little") if kind is Kind.BOOL else data)
    return pa.Array.from_buffers(arrow_type, len(items), [_validity(present), buffer])


def _validity(present: BoolArray | None) -> "pa.Buffer | None":
    import pyarrow as pa

    if present is None or present.all():
        return None
    return pa.py_buffer(np.packbits(present, bitorder="little"))


def _strings(items: Sequence[object]) -> "pa.Array":
    import pyarrow as pa

    encoded = [str(item).encode() for item in items]
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in encoded])]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def _categories(column: Column, items: Items) -> "pa.DictionaryArray":
    """Return codes into the fixed choices, or into the values in order of appearance."""
    import pyarrow as pa

    labels: Items = column.choices or tuple(dict.fromkeys(items))
    codes: dict[object, int | None] = {label: code for code, label in enumerate(labels)}
    if column.nullable:
        codes[None] = None
    indices = _integers(Kind.INT32, tuple([codes[item] for item in items]))
    return pa.DictionaryArray.from_arrays(indices, _strings(labels))


def _lists(kind: Kind, items: Items) -> "pa.ListArray":
    import pyarrow as pa

    lists: tuple[Sequence[object], ...] = items  # type: ignore[assignment]
    offsets = np.concatenate([[0], np.cumsum([len(entry) for entry in lists])]).astype(np.int32)
    flat = tuple(chain.from_iterable(lists))
    values = {
        Kind.INT32_LIST: lambda: _numbers(Kind.INT32, flat),
        Kind.FLOAT64_LIST: lambda: _numbers(Kind.FLOAT64, flat),
        Kind.STRING_LIST: lambda: _strings(flat),
    }[kind]()
    return pa.Array.from_buffers(pa.list_(values.type), len(lists), [None, pa.py_buffer(offsets)], children=[values])
