"""Traces: formats are recognised, columns are canonical, and every kind of damage gets one clear line."""

import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancesim.trace_formats import (
    TRACE_FORMATS,
    TRACES_DIR,
    TraceError,
    load_trace,
    read_trace,
    trace_names,
    trace_path,
)

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n"
OWN = "arrival_s,prompt_tokens,output_tokens\n"


def mooncake(timestamp: object, prompt: object = 5, output: object = 6) -> str:
    record = {"timestamp": timestamp, "input_length": prompt, "output_length": output, "hash_ids": [0, 1]}
    return json.dumps(record) + "\n"


def written(folder: Path, content: str | bytes, name: str = "t.dat") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_azure_conversation_has_the_published_size():
    """19,366 requests over 3,501.7 s with mean lengths 1,155 and 211 (facts of the data set)."""
    rows = load_trace("azure_conversation")
    assert len(rows.arrival_s) == 19_366
    assert rows.arrival_s[0] == 0.0
    assert rows.duration_s == pytest.approx(3501.721937, abs=1e-6)
    assert (round(rows.prompt_tokens.mean()), round(rows.output_tokens.mean())) == (1155, 211)
    assert rows.tick_s == 0.0


def test_mooncake_conversation_has_the_published_size_and_ticks():
    """7,851 rows in 800 ticks of 3 s, mean prompt 12,428 tokens, all sharing the first prefix block."""
    frame = read_trace(trace_path("mooncake_conversation"))
    assert len(frame) == 7851
    assert round(frame["prompt_tokens"].mean()) == 12_428
    assert frame["arrival_s"].nunique() == 800
    assert frame.attrs["tick_s"] == 3.0
    assert {hashes[0] for hashes in frame["block_hashes"]} == {0}


def test_only_the_conversation_file_has_ticks():
    """The synthetic Mooncake trace has fine times and stays as filed."""
    rows = load_trace("mooncake_synthetic")
    assert len(rows.arrival_s) == 3993
    assert rows.tick_s == 0.0


def test_shipped_files_are_the_published_bytes():
    """The sha256 of every trace's content stands in SOURCES.md."""
    sources = (TRACES_DIR / "SOURCES.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `([^`]+)` .*`([0-9a-f]{64})` \|$", sources, flags=re.MULTILINE))
    assert {path.name for path in trace_names().values()} == set(listed)
    for name, digest in listed.items():
        data = (TRACES_DIR / name).read_bytes()
        content = gzip.decompress(data) if name.endswith(".gz") else data
        assert digest == hashlib.sha256(content).hexdigest()


def test_names_resolve_from_any_working_directory(tmp_path):
    """A trace's name is found from another working directory."""
    code = "from balancesim.trace_formats import trace_path; print(trace_path('azure_conversation'))"
    env = {**os.environ, "PYTHONPATH": str(TRACES_DIR.parent)}
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert Path(out.stdout.strip()) == TRACES_DIR / "azure_conversation.csv"


def test_paths_count_from_the_scenarios_folder(tmp_path):
    """A relative path counts from the folder given, an absolute one stands for itself."""
    path = written(tmp_path, OWN + "0,1,1\n", "mine.csv")
    assert trace_path("mine.csv", tmp_path) == path
    assert trace_path(str(path)) == path


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("azure_conversatoin", "did you mean azure_conversation"),
        ("nothing.csv", "no such file; a trace is a path or one of: azure_conversation"),
        ("sub/nothing", "no such file"),
        (".", "must be a file, got a folder"),
    ],
)
def test_unknown_traces_are_named(tmp_path, file, message):
    """A missing trace is an error with the choices or the nearest name."""
    with pytest.raises(TraceError, match=message):
        trace_path(file, tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        AZURE + "2023-11-16 18:15:46.6805900,5,6\n2023-11-16 18:15:47.9305900,7,8",
        (AZURE + "2023-11-16 18:15:46.6805900,5,6\n2023-11-16 18:15:47.9305900,7,8\n").replace("\n", "\r\n"),
        AZURE + "2024-05-10 00:00:00.009930+00:00,5,6\n2024-05-10 00:00:01.259930+00:00,7,8\n",
        VIDUR + "0,5,6\n1.25,7,8\n",
        "x,num_decode_tokens,arrived_at,num_prefill_tokens\na,6,0.0,5\nb,8,1.25,7\n",
        OWN + "0,5,6\n1.25,7,8\n",
        mooncake(0) + mooncake(1250, 7, 8),
    ],
    ids=["azure", "azure_crlf", "azure_2024", "vidur", "vidur_more_columns", "canonical", "mooncake"],
)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_formats_are_recognised_by_content(tmp_path, content, packed):
    """Each format yields the same columns, whatever the file is called, packed or not."""
    data = content.encode()
    frame = read_trace(written(tmp_path, gzip.compress(data) if packed else data))
    assert frame["arrival_s"].tolist() == pytest.approx([0.0, 1.25])
    assert frame["prompt_tokens"].tolist() == [5, 7]
    assert frame["output_tokens"].tolist() == [6, 8]


def test_own_format_keeps_tasks(tmp_path):
    """The optional task column reaches the rows; a missing task is the empty name."""
    path = written(tmp_path, "arrival_s,prompt_tokens,output_tokens,task\n0,1,1,chat\n1,1,1,\n")
    rows = load_trace(str(path))
    assert rows.task is not None
    assert rows.task.tolist() == ["chat", ""]


def test_parquet_is_read(tmp_path):
    """Own columns in Parquet are read as they are; further columns are kept."""
    frame = pd.DataFrame(
        {"arrival_s": [0.0, 2.5], "prompt_tokens": [3, 4], "output_tokens": [5, 6], "more": ["a", "b"]}
    )
    path = tmp_path / "t"
    frame.to_parquet(path)
    pd.testing.assert_frame_equal(read_trace(path), frame)


DAMAGED = [
    ("", "must have requests, got an empty file"),
    ("\n \n", "must have requests, got an empty file"),
    (OWN, "must have requests, got a header without rows"),
    ("a,b\n1,2\n", "line 1: must be the header of a known format .*got 'a, b'"),
    ("arrival_s,prompt_tokens\n1,2\n", "line 1: column output_tokens is missing, got arrival_s, prompt_tokens"),
    ("TIMESTAMP,ContextTokens\n2023-11-16 18:15:46,2\n", "line 1: column GeneratedTokens is missing"),
    ("arrival_s,prompt_tokens,output_tokens,arrival_s\n1,2,3,4\n", "line 1: column names must differ"),
    (OWN + "0,1,1\n5,1,1\n4,1,1\n", r"line 4: arrivals must be sorted by time, got 4\.0 after 5\.0"),
    (OWN + "0,1,1\n5,1", "line 3: must have 3 fields, got 2; the file looks cut"),
    (OWN + "0,1,1\n5,1,1", "line 3: the last line must end with a line break; the file looks cut"),
    (OWN + "0,1,1\n5,1\n6,1,1\n", "line 3: must have 3 fields, got 2$"),
    (OWN + "0,1,1\n\n5,x,1\n", "line 4: prompt_tokens must be a whole number, got 'x'"),
    (OWN + "0,1,1\n5,1.5,1\n", "line 3: prompt_tokens must be a whole number, got '1.5'"),
    (OWN + "0,1,1\n5,,1\n", "line 3: prompt_tokens must be a whole number, got ''"),
    (OWN + "0,1,1\nnan,1,1\n", "line 3: arrival_s must be a finite number, got 'nan'"),
    (OWN + "-1,1,1\n", r"line 2: arrival_s must be at least 0, got -1\.0"),
    (OWN + "0,0,1\n", "line 2: prompt_tokens must be at least 1, got 0"),
    (OWN + "0,1,-4\n", "line 2: output_tokens must be at least 1, got -4"),
    (OWN + "0,99999999999999999999,1\n", "t.dat: "),
    (VIDUR + "0,1,1\n1,2,zz\n", "line 3: num_decode_tokens must be a whole number, got 'zz'"),
    (AZURE + "yesterday,1,1\n", "line 2: TIMESTAMP must be a date and time, got 'yesterday'"),
    (AZURE + "2023-11-16 18:15:46,1,1\n2023-11-16 18:15:45,1,1\n", "line 3: arrivals must be sorted by time"),
    (AZURE + "2023-11-16 18:15:46,1,1\n2023-11-16 18:1", "line 3: must have 3 fields, got 1; the file looks cut"),
    (mooncake(0) + mooncake(1)[:30], "line 2: must be a JSON object, got .*; the file looks cut"),
    (mooncake(0) + "{oops}\n" + mooncake(1), "line 2: must be a JSON object, got '{oops}'$"),
    (mooncake(0) + "[1]\n", "line 2: must be a JSON object"),
    (mooncake(0) + '{"timestamp": 1, "input_length": 2}\n', "line 2: output_length is missing"),
    (mooncake(5) + "\n" + mooncake(1), r"line 3: arrivals must be sorted by time, got 0\.001 after 0\.005"),
    (mooncake(0, "7"), "line 1: input_length must be a whole number, got '7'"),
    (mooncake(0, 7, 1.5), "line 1: output_length must be a whole number, got 1.5"),
    (mooncake(0, 7, 0), "line 1: output_tokens must be at least 1, got 0"),
    (mooncake(-3), r"line 1: arrival_s must be at least 0, got -0\.003"),
    (bytes(range(256)) * 10, "must be text or Parquet, got binary data"),
    (OWN.encode() + b"0,1,1\n\0\xff\0\n", "must be text or Parquet, got binary data"),
    (b"{\0\xff" * 100, "must be text or Parquet, got binary data"),
    (b"PAR1 and then nothing of the kind", "the Parquet file is cut or damaged"),
    (gzip.compress(OWN.encode() * 50)[:-12], "the gzip file is cut or damaged"),
]


@pytest.mark.parametrize(("content", "message"), DAMAGED, ids=range(len(DAMAGED)))
def test_damage_gets_one_clear_line(tmp_path, content, message):
    """Every kind of damage is a one-line TraceError that names file, line, rule and value."""
    path = written(tmp_path, content)
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_and_unreadable_files_are_named(tmp_path):
    """A path without a file, or with a folder, is a TraceError."""
    with pytest.raises(TraceError, match="no such file"):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(tmp_path)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"arrival_s": [0.0], "prompt_tokens": [1]}, "column output_tokens is missing"),
        ({"arrival_s": [0.0], "prompt_tokens": [1.5], "output_tokens": [1]}, "prompt_tokens must hold whole numbers"),
        ({"arrival_s": ["a"], "prompt_tokens": [1], "output_tokens": [1]}, "arrival_s must hold numbers"),
        ({"arrival_s": [None, 1.0], "prompt_tokens": [1, 1], "output_tokens": [1, 1]}, "must have no nulls, got 1"),
        ({"arrival_s": [2.0, 1.0], "prompt_tokens": [1, 1], "output_tokens": [1, 1]}, "row 2: arrivals must be sorted"),
        ({"arrival_s": [2.0], "prompt_tokens": [0], "output_tokens": [1]}, "row 1: prompt_tokens must be at least 1"),
        ({"arrival_s": [float("inf")], "prompt_tokens": [1], "output_tokens": [1]}, "row 1: arrival_s must be"),
    ],
)
def test_bad_parquet_gets_one_clear_line(tmp_path, columns, message):
    """Parquet files are held to the same rules."""
    path = tmp_path / "t.parquet"
    # Arrow itself writes a null, where pandas would make it a NaN
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table(columns), path)
    with pytest.raises(TraceError, match=message):
        read_trace(path)


def test_changed_file_is_read_again(tmp_path):
    """Rows kept in memory are dropped when the file changes."""
    path = written(tmp_path, OWN + "0,1,1\n")
    assert len(load_trace(str(path)).arrival_s) == 1
    written(tmp_path, OWN + "0,1,1\n1,1,1\n")
    assert len(load_trace(str(path)).arrival_s) == 2


def test_every_format_has_a_name_and_a_help_line():
    """Listed formats have distinct names and a one-line description."""
    assert len({cls.name for cls in TRACE_FORMATS}) == len(TRACE_FORMATS)
    assert all((cls.__doc__ or "").strip() for cls in TRACE_FORMATS)


sizes = st.integers(1, 2**31 - 1)
gaps_ms = st.integers(0, 10**7)


@settings(max_examples=30, deadline=None)
@given(rows=st.lists(st.tuples(gaps_ms, sizes, sizes), min_size=1, max_size=20))
def test_all_formats_agree(tmp_path_factory, rows):
    """The same requests written in each format are read as the same table."""
    folder = tmp_path_factory.mktemp("agree")
    times_ms = np.cumsum([gap for gap, _, _ in rows])
    table = [(int(t), s, n) for t, (_, s, n) in zip(times_ms, rows, strict=True)]
    own = OWN + "".join(f"{t / 1e3!r},{s},{n}\n" for t, s, n in table)
    vidur = VIDUR + "".join(f"{t / 1e3!r},{s},{n}\n" for t, s, n in table)
    lines = "".join(mooncake(t, s, n) for t, s, n in table)
    frames = [
        read_trace(written(folder, text)).drop(columns="block_hashes", errors="ignore") for text in (own, vidur, lines)
    ]
    for frame in frames[1:]:
        pd.testing.assert_frame_equal(frames[0], frame)
    assert [tuple(row) for row in frames[0][["prompt_tokens", "output_tokens"]].to_numpy()] == [
        (s, n) for _, s, n in table
    ]


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_cut_file_is_an_error_or_a_whole_prefix(tmp_path_factory, data):
    """Wherever an own csv is cut, the reader raises or returns whole rows of the original, never a changed number."""
    full = OWN + "0.0,12,345\n1.5,678,90\n2.25,11,12\n"
    cut = data.draw(st.integers(0, len(full) - 1))
    path = written(tmp_path_factory.mktemp("cut"), full[:cut])
    try:
        frame = read_trace(path)
    except TraceError:
        return
    original = [(0.0, 12, 345), (1.5, 678, 90), (2.25, 11, 12)]
    assert [tuple(row) for row in frame.itertuples(index=False)] == original[: len(frame)]
