"""`mlaplan kv`: the figures that are known, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Run

LLAMA = ("kv", "llama-3-70b", "ascend-910b3", "--tp", "4", "--pp", "2")


def data(run: Run, *arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--format", "json")
    assert result.code == 0, result.err
    found: dict[str, Any] = json.loads(result.out)
    return found


def formats(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["format"]: row for row in found["formats"]}


def test_a_token_of_llama_3_70b_in_the_model_and_on_a_chip(run: Run) -> None:
    found = data(run, *LLAMA)
    assert found["schema"] == "mlaplan.kv/1"
    sixteen, eight = (formats(found)[name] for name in ("bf16", "int8 group-128"))
    assert (sixteen["model_bytes_per_token"], sixteen["chip_bytes_per_token"]) == (327_680, 40_960)
    assert eight["model_bytes_per_token"] == 166_400
    assert found["memory"]["weight_bytes"] == pytest.approx(17.64e9, rel=2e-3)


@pytest.mark.parametrize(("pool", "whole", "chip"), [("22 GB", 67_138, 537_109), ("22 GiB", 72_089, 576_716)])
def test_what_22_gb_and_22_gib_hold_and_which_is_meant(run: Run, pool: str, whole: int, chip: int) -> None:
    row = formats(data(run, *LLAMA, "--pool", pool))["bf16"]
    assert (row["model_tokens"], row["chip_tokens"]) == (whole, chip)
    words = " ".join(run(*LLAMA, "--pool", pool).out.split())
    assert f"{pool} (1 {pool[3:]} = " in words and f"hold {whole:,} tokens of the whole model" in words
    assert "before rounding to blocks" in words and "would hold" in words


@pytest.mark.parametrize(("chip", "fits"), [("ascend-910a", False), ("ascend-910b3", True)])
def test_a_pool_of_20_gb_needs_a_chip_of_64(run: Run, chip: str, fits: bool) -> None:
    line = ("kv", "llama-3-70b", chip, "--tp", "4", "--pp", "2", "--pool", "20GB")
    assert data(run, *line)["fits"] is fits
    assert ("DOES NOT FIT" in run(*line).out) is not fits


def test_the_first_ascend_takes_fp16_and_says_so(run: Run) -> None:
    result = run("kv", "llama-3-70b", "ascend-910a", "--tp", "4", "--pp", "2")
    assert "ascend-910a has no bf16" in result.err and "fp16" in result.out


def test_fp8_is_only_stored_where_the_chip_has_none(run: Run) -> None:
    rows = formats(data(run, *LLAMA))
    assert not rows["fp8"]["chip_has_dtype"] and rows["int8 group-128"]["chip_has_dtype"]
    assert "ascend-910b3 multiplies no fp8" in run(*LLAMA).out


def test_more_ranks_than_kv_heads_repeat_them(run: Run) -> None:
    eight, sixteen = (data(run, "kv", "llama-3-70b", "ascend-910b3", "--tp", n) for n in ("8", "16"))
    assert formats(eight)["bf16"]["chip_bytes_per_token"] == formats(sixteen)["bf16"]["chip_bytes_per_token"] == 40_960


def test_every_attention_dp_rank_has_a_copy_of_a_prefix(run: Run) -> None:
    line = ("kv", "deepseek-v3", "h200-sxm", "--dp", "16", "--prefix", "3000", "--prefix-groups", "20")
    routed, anywhere = data(run, *line), data(run, *line, "--no-prefix-routing")
    assert (routed["shared_tokens"], anywhere["shared_tokens"]) == (2 * 2944, 20 * 2944)


def test_an_int8_cache_errs_more_than_16_bit_and_less_than_fp8(run: Run) -> None:
    rows = formats(data(run, *LLAMA))
    errors = [rows[name]["relative_error"] for name in ("bf16", "int8 group-128", "fp8 tile-128")]
    assert errors == sorted(errors) and errors[0] > 0


def test_it_fits_eighty_columns_in_every_format(run: Run) -> None:
    assert max(map(len, run(*LLAMA, "--pool", "22GB").out.splitlines())) <= 80
    assert max(map(len, run("kv", "deepseek-v3", "h200-sxm", "--dp", "16").out.splitlines())) <= 80
    assert run(*LLAMA, "--format", "md").out.startswith("# KV cache")
    assert run(*LLAMA, "--format", "csv").out.splitlines()[0].startswith("format,kv_dtype,")


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (("--pool", "20"), "--pool: '20' has no unit"),
        (("--pool", "0 GB"), "--pool: above 0 bytes"),
        (("--watermark", "1.5"), "--watermark 1.5: expected a share below 1"),
        (("--lengths", "5-"), "--lengths: '5-' is no range"),
        (("--lengths", "9-5"), "--lengths: '9-5' is no range"),
        (("--lengths", "normal:5"), "--lengths: 'normal:5' is no distribution"),
        (("--prefix-groups", "20"), "--prefix-groups goes with --prefix"),
        (("--prefix", "7", "--prefix-groups", "20"), "is shorter than a block of 128 tokens"),
        (("--prefix", "12 chars", "--prefix-groups", "20"), "counts characters"),
        (("--no-prefix-routing",), "--prefix-routing goes with --prefix-groups"),
    ],
)
def test_bad_input_is_one_line(run: Run, extra: tuple[str, ...], said: str) -> None:
    result = run(*LLAMA, *extra)
    assert result.code == 2 and result.out == ""
    assert said in result.err and len(result.err.strip().splitlines()) == 1


def test_empty_tokens_are_a_share_of_what_a_sequence_adds(run: Run) -> None:
    """4,600 tokens are 4,608 in blocks of 16; less 2,944 of the prefix 8 of 1,664 are empty."""
    shared = ("--prefix", "2944", "--prefix-groups", "20")
    by_size = {b["block_tokens"]: b for b in data(run, *LLAMA, "--lengths", "4600", *shared)["blocks"]}
    assert by_size[16]["waste_tokens"] == 8 and by_size[16]["waste_share"] == pytest.approx(8 / 1664)
    alone = {b["block_tokens"]: b for b in data(run, *LLAMA, "--lengths", "4600")["blocks"]}
    assert alone[16]["waste_share"] == pytest.approx(8 / 4608)
    assert "is stored once and stands apart" in " ".join(run(*LLAMA, *shared).out.split())


def test_lengths_are_spelled_as_for_the_simulator(run: Run) -> None:
    one, other = (data(run, *LLAMA, "--lengths", text)["blocks"] for text in ("1k-8k", "uniform:1k:8k"))
    assert one == other
    drawn = data(run, *LLAMA, "--lengths", "lognormal:3500:0.8")
    assert drawn["lengths"]["mean_tokens"] == pytest.approx(3500, rel=0.01)
    # a wide distribution leaves half a block empty
    assert drawn["blocks"][-1]["waste_tokens"] == pytest.approx(127 / 2, rel=0.01)


def test_buckets_of_a_size(run: Run) -> None:
    """3,000 tokens in buckets of 512: five are found, 440 computed again, 72 of the sixth are empty, six look-ups."""
    (bucket,) = data(run, *LLAMA, "--prefix", "3000", "--buckets", "512")["buckets"]
    assert bucket == {"bucket_tokens": 512, "recomputed_tokens": 440, "padding_tokens": 72, "lookups": 6}
    refused = run(*LLAMA, "--buckets", "0")
    assert refused.code == 2 and "at least 1 token" in refused.err
