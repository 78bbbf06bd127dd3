"""`mlaplan verify` as a user meets it: table, formats, exit codes, refusals."""

import json

import pytest

from mlaplan.__main__ import main
from mlaplan.cli.formats import Format
from mlaplan.cli.verify import known, shapes_of, verify, whole_numbers
from mlaplan.errors import MlaplanError

SMALL_MODEL = """
kind: model
name: tiny
title: A small MLA model
source: made up
hidden_size: 64
vocab_size: 100
max_position: 4096
attention:
  mla:
    {kind: mla, heads: 8, q_lora_rank: 24, kv_lora_rank: 32, qk_nope_head_dim: 16, qk_rope_head_dim: 8,
     v_head_dim: 16}
  gqa: {kind: gqa, heads: 8, kv_heads: 2, head_dim: 16}
ffn:
  dense: {kind: dense, intermediate_size: 128}
layers:
  - {count: 2, attention: [mla], ffn: [dense]}
  - {count: 1, attention: [gqa], ffn: [dense]}
weights: {default: bf16}
"""


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(SMALL_MODEL)
    return str(path)


def run(model, **options):
    defaults = {
        "attention": None, "context": "64", "batch": 2, "q_len": 2, "dtype": "fp64", "kv_dtype": None,
        "ranks": "2,4", "logit_std": 4.0, "seed": 0, "output": Format.table, "file": None, "plot": None,
    }  # fmt: skip
    return verify(model, **(defaults | options))


def test_all_variants_agree_and_the_exit_code_is_zero(tiny, capsys):
    assert run(tiny) == 0
    out, err = capsys.readouterr()
    assert "absorbed" in out
    assert "tp4 latent-sharded" in out
    assert "differs" not in out
    assert "0 out of tolerance" in err


def test_json_has_a_schema_and_one_row_per_variant(tiny, capsys):
    assert run(tiny, output=Format.json, kv_dtype="fp8") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == "mlaplan.verify/1"
    assert data["context_tokens"] == 64
    assert data["kv_dtype"] == "fp8_e4m3"
    assert {"variant", "max_abs", "relative", "cosine", "sent_bytes", "expected_bytes", "verdict"} <= set(
        data["rows"][0]
    )
    assert {row["verdict"] for row in data["rows"]} == {"agrees", "measured"}


@pytest.mark.parametrize("how", [Format.csv, Format.md])
def test_other_formats_and_a_file(tiny, how, tmp_path, capsys):
    target = tmp_path / "out"
    assert run(tiny, output=how, file=str(target)) == 0
    assert target.read_text().count("\n") > 10
    assert capsys.readouterr().out == ""


def test_exit_code_one_when_a_variant_is_out_of_tolerance(tiny, monkeypatch, capsys):
    from mlaplan.kernel import case

    monkeypatch.setattr(case, "FP64", 1e-20)
    assert run(tiny) == 1
    assert "differs" in capsys.readouterr().out


def test_a_result_with_nan_is_null_in_json():
    from mlaplan.kernel.verify import DIFFERS, Row
    from mlaplan.report.verify_table import render

    row = Row("absorbed", float("inf"), float("inf"), float("inf"), 0.0, 0.0, 1e-12, DIFFERS)
    assert json.loads(render({}, [row], "json"))["rows"][0]["relative"] is None


def test_plot(tiny, tmp_path):
    path = tmp_path / "errors.svg"
    assert run(tiny, plot=str(path)) == 0
    assert path.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kv_dtype": "fp8_ds_mal"}, "did you mean 'fp8_ds_mla'"),
        ({"dtype": "bf16"}, "expected one of fp64, fp32"),
        ({"ranks": "2,x"}, "--ranks 2,x: expected whole numbers"),
        ({"context": "0"}, "at least 1"),
        ({"attention": "mlb"}, "did you mean 'mla'"),
        ({"file": "/no/such/place/out"}, "cannot be written"),
    ],
)
def test_bad_usage_is_one_line(tiny, options, message):
    with pytest.raises(MlaplanError, match=message) as refusal:
        run(tiny, **options)
    assert "\n" not in str(refusal.value)


def test_a_model_without_mla_is_refused(tmp_path):
    path = tmp_path / "gqa.yaml"
    text = SMALL_MODEL.replace("  - {count: 2, attention: [mla], ffn: [dense]}\n", "")
    path.write_text(text[: text.index("  mla:")] + text[text.index("  gqa:") :])
    with pytest.raises(MlaplanError, match="has no MLA"):
        run(str(path))


def test_helpers(tiny):
    assert whole_numbers("--ranks", "2, 4") == [2, 4]
    known("--dtype", "fp64", ["fp64"])
    name, shapes, top_k = shapes_of(tiny, None)
    assert (name, shapes.heads, shapes.cache_dim, top_k) == ("mla", 8, 40, None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--plot", "nowhere/x.png"), "nowhere/x.png: cannot be written: there is no folder nowhere"),
        (("--plot", "x.xyz"), "x.xyz: cannot be drawn: expected a name that ends in .png, .svg, .pdf, .jpg"),
        (("--plot", "."), ".: is a folder; expected a file to write to"),
        (("--context", "4x"), "--context: '4x' is not a number of tokens"),
    ],
)
def test_a_wrong_path_or_count_is_refused_before_any_work(options, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["verify", "deepseek-v3", *options]) == 2
    out, err = capsys.readouterr()
    assert out == "" and said in err
    assert list(tmp_path.iterdir()) == []
