"""Flag tables against what is known of the flags' lifetimes, and reading against argparse itself."""

from __future__ import annotations

import argparse
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlaplan.engines import engine_versions
from mlaplan.engines.flags import KINDS, FlagTable, load_flags, read_flags
from mlaplan.errors import MlaplanError

TABLES = [(name, version) for name in ("vllm", "sglang") for version in engine_versions(name)]

# vllm-project/vllm vllm/engine/arg_utils.py and sgl-project/sglang server_args.py at each tag
LIFETIMES = [
    ("vllm", "--decode-context-parallel-size", "0.11.0", "0.33.0"),
    ("vllm", "-dcp", "0.11.0", "0.33.0"),
    ("vllm", "--all2all-backend", "0.15.1", "0.33.0"),
    ("vllm", "--attention-backend", "0.15.1", "0.33.0"),
    ("vllm", "--dcp-comm-backend", "0.26.0", "0.33.0"),
    ("vllm", "--enable-dbo", "0.11.0", "0.33.0"),
    ("vllm", "--swap-space", "0.9.2", "0.15.1"),
    ("vllm", "--num-redundant-experts", "0.9.2", "0.11.0"),
    ("vllm", "--calculate-kv-scales", "0.9.2", "0.26.0"),
    ("vllm", "--disable-log-requests", "0.9.2", "0.15.1"),
    ("vllm", "--num-scheduler-steps", "0.9.2", "0.9.2"),
    ("vllm", "--nnodes", "0.15.1", "0.33.0"),
    ("vllm", "--headless", "0.9.2", "0.33.0"),
    ("sglang", "--attn-dp-size", "0.5.23", "0.5.23"),
    ("sglang", "--dcp-size", "0.5.23", "0.5.23"),
    ("sglang", "--cuda-graph-max-bs", "0.5.5", "0.5.5"),
    ("sglang", "--nsa-decode-backend", "0.5.5", "0.5.5"),
    ("sglang", "--dsa-decode-backend", "0.5.23", "0.5.23"),
    ("sglang", "--enable-dp-attention", "0.5.5", "0.5.23"),
]


@pytest.mark.parametrize(("engine", "flag", "first", "last"), LIFETIMES)
def test_lifetimes(engine, flag, first, last):
    versions = engine_versions(engine)
    for version in versions:
        alive = versions.index(first) <= versions.index(version) <= versions.index(last)
        assert (load_flags(engine, version).name(flag) is not None) == alive


@pytest.mark.parametrize(("engine", "version"), TABLES)
def test_tables_are_whole(engine, version):
    table = load_flags(engine, version)
    assert len({f.name for f in table.spellings.values()}) > 150
    for spelled, flag in table.spellings.items():
        assert flag.kind in KINDS and spelled.startswith("-")
        assert table.spellings[flag.name] is flag
        if flag.kind == "int" and flag.choices:
            assert all(choice.isdigit() for choice in flag.choices)


def test_a_flag_that_is_missing_says_when_it_exists():
    with pytest.raises(MlaplanError, match=r"vllm 0.9.2 has no flag --enable-dbo: it exists from 0.11.0 to 0.33.0"):
        load_flags("vllm", "0.9.2").flag("--enable-dbo")
    with pytest.raises(MlaplanError, match=r"did you mean '--block-size'\?"):
        load_flags("vllm", "0.33.0").flag("--blok-size")


def values(engine: str, version: str, *argv: str) -> dict:
    line = read_flags(load_flags(engine, version), argv)
    assert line.complaints == []
    return line.values


def test_spellings():
    got = values("vllm", "0.33.0", "-tp", "8", "--data_parallel_size=2", "--max-model-len", "16K", "-ep")
    assert got == {
        "--tensor-parallel-size": 8,
        "--data-parallel-size": 2,
        "--max-model-len": 16384,
        "--enable-expert-parallel": True,
    }
    assert values("vllm", "0.33.0", "--no-enable-prefix-caching") == {"--enable-prefix-caching": False}
    assert values("vllm", "0.33.0", "--max-num-batched-tokens", "2.5k")["--max-num-batched-tokens"] == 2500
    assert values("vllm", "0.33.0", "-O3") == {"--optimization-level": "3"}
    assert values("vllm", "0.9.2", "-O3") == {"--compilation-config": 3}
    assert values("sglang", "0.5.23", "--context-length", "4Ki") == {"--context-length": 4096}
    assert values("sglang", "0.5.5", "--tp", "8", "--dp", "2") == {
        "--tensor-parallel-size": 8,
        "--data-parallel-size": 2,
    }
    assert values("sglang", "0.5.23", "--tp", "8", "--dp", "2") == {"--tp-size": 8, "--dp-size": 2}
    assert values("sglang", "0.5.23", "--chunked-prefill-size", "-1") == {"--chunked-prefill-size": -1}


def test_json_whole_and_by_dotted_keys():
    whole = values("vllm", "0.33.0", "--speculative-config", '{"method": "mtp", "num_speculative_tokens": 2}')
    dotted = values(
        "vllm",
        "0.33.0",
        "--speculative-config.method",
        "mtp",
        "--speculative-config.num_speculative_tokens=2",
    )
    assert whole == dotted == {"--speculative-config": {"method": "mtp", "num_speculative_tokens": 2}}
    nested = values("vllm", "0.33.0", "--eplb_config.a.b", "1", "--eplb-config.a.c", "x")
    assert nested == {"--eplb-config": {"a": {"b": 1, "c": "x"}}}


COMPLAINTS = [
    ("vllm", "0.33.0", ["--block-sise", "16"], 0, "did you mean '--block-size'?"),
    ("vllm", "0.33.0", ["model", "--tensor-parallel-size", "x"], 1, "expected a whole number"),
    ("vllm", "0.11.0", ["--block-size", "24"], 0, "one of 1, 8, 16, 32, 64, 128"),
    ("vllm", "0.33.0", ["--kv-cache-dtype", "fp9"], 0, "did you mean 'fp8'?"),
    ("vllm", "0.33.0", ["--enable-e", "1"], 0, "short for more than one"),
    ("vllm", "0.33.0", ["--enforce-eager=1"], 0, "takes no value"),
    ("vllm", "0.33.0", ["--max-num-seqs"], 0, "has no value"),
    ("vllm", "0.26.0", ["--disable-log-requests"], 0, "it exists from 0.9.2 to 0.15.1"),
    (
        "sglang",
        "0.5.23",
        ["--cuda-graph-max-bs", "512"],
        0,
        "it exists in 0.5.5 only, and it is short for more",
    ),
    ("sglang", "0.5.23", ["--tp_size", "8"], 0, "did you mean '--tp-size'?"),
]


@pytest.mark.parametrize(("engine", "version", "argv", "token", "words"), COMPLAINTS)
def test_complaints_point_at_the_word(engine, version, argv, token, words):
    line = read_flags(load_flags(engine, version), argv)
    assert [c.token for c in line.complaints] == [token]
    assert words in line.complaints[0].text()


def test_a_variable_is_kept_as_it_stands():
    assert values("vllm", "0.33.0", "-tp", "$TP") == {"--tensor-parallel-size": "$TP"}


def test_values_with_dashes_positionals_and_the_last_of_two():
    line = read_flags(load_flags("vllm", "0.33.0"), ["org/model", "-tp", "2", "-tp", "4", "--", "--odd"])
    assert line.positionals == [(0, "org/model"), (6, "--odd")]
    assert line.values == {"--tensor-parallel-size": 4} and [g.value for g in line.given] == [2, 4]


def argparser(table: FlagTable) -> argparse.ArgumentParser:
    """argparse with the same flags: what the engine itself runs, without its types' extras."""
    parser = argparse.ArgumentParser(exit_on_error=False, add_help=False)
    parser.add_argument("positional", nargs="*")
    for flag in {f.name: f for f in table.spellings.values()}.values():
        names = [flag.name, *flag.also]
        if flag.kind == "bool":
            parser.add_argument(
                *names, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, dest=flag.name
            )
        elif flag.kind == "switch":
            parser.add_argument(*names, action="store_true", default=argparse.SUPPRESS, dest=flag.name)
        else:
            kind = {"int": int, "float": float, "json": json.loads}.get(flag.kind, str)
            nargs = {"list": "+", "optional": "?"}.get(flag.kind)
            parser.add_argument(
                *names, type=kind, nargs=nargs, default=argparse.SUPPRESS, const=True, dest=flag.name
            ) if (nargs == "?") else parser.add_argument(
                *names, type=kind, nargs=nargs, default=argparse.SUPPRESS, dest=flag.name
            )
    return parser


SAMPLES = {
    "int": ["1", "64", "-1"],
    "float": ["0.9", "1"],
    "str": ["auto", "a b", "x=y"],
    "json": ['{"a": 1}', "[1]", "2"],
    "list": ["a", "b"],
    "optional": ["t"],
}


@st.composite
def command_lines(draw, table: FlagTable):
    words = []
    flags = sorted({f.name for f in table.spellings.values() if f.kind != "size" and not f.glued and not f.choices})
    for name in draw(st.lists(st.sampled_from(flags), max_size=6)):
        flag = table.spellings[name]
        spelled = draw(st.sampled_from([s for s, f in table.spellings.items() if f is flag]))
        if spelled.startswith("--") and draw(st.booleans()):
            short = spelled[: draw(st.integers(3, len(spelled)))]
            if sum(s.startswith(short) for s in table.spellings) == 1:
                spelled = short
        if flag.kind in ("bool", "switch"):
            words.append(spelled)
            continue
        value = draw(st.sampled_from(SAMPLES[flag.kind]))
        if draw(st.booleans()):
            words.append(f"{spelled}={value}")
        elif flag.kind == "list":
            words += [spelled, *draw(st.lists(st.sampled_from(SAMPLES["list"]), min_size=1, max_size=3))]
        else:
            words += [spelled, value]
    return words


@pytest.mark.parametrize(("engine", "version"), TABLES)
def test_reads_as_argparse_reads(engine, version):
    table = load_flags(engine, version)
    parser = argparser(table)

    @settings(max_examples=40, deadline=None)
    @given(command_lines(table))
    def check(words):
        expected = {k: v for k, v in vars(parser.parse_args(words)).items() if k != "positional"}
        line = read_flags(table, words)
        assert line.complaints == []
        assert line.values == expected

    check()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=12) | st.sampled_from(["--", "-", "-tp", "--tp", "-O", "--a.b", "=", "--=", "-1"])))
def test_never_raises(words):
    for engine, version in (("vllm", "0.33.0"), ("sglang", "0.5.23")):
        read_flags(load_flags(engine, version), words)


# vllm-project/vllm at the tag of the version named, vllm/engine/arg_utils.py
PLUGIN = [
    ("0.11.0", "--cuda-graph-sizes", True), ("0.11.0", "--nnodes", False), ("0.13.0", "--nnodes", True),
    ("0.13.0", "-ep", False), ("0.13.0", "--enable-expert-parallel", True), ("0.18.0", "-ep", True),
    ("0.18.0", "--swap-space", False), ("0.18.0", "--disable-frontend-multiprocessing", True),
    ("0.18.0", "--dcp-comm-backend", True), ("0.13.0", "--dcp-comm-backend", False),
    ("0.23.0", "--watermark", False), ("0.23.0", "--numa-bind", True), ("0.23.0", "--no-numa-bind", True),
]  # fmt: skip


@pytest.mark.parametrize(("version", "flag", "there"), PLUGIN)
def test_a_plugin_takes_the_flags_of_its_release(version, flag, there):
    table = load_flags("vllm_ascend", version)
    assert (flag in table.spellings) is there
    assert (table.engine, table.version) == ("vllm_ascend", version)
