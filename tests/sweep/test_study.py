"""Studies: from options and from files, with every mistake at its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlaplan.errors import MlaplanError, SpecError
from mlaplan.sweep import study
from mlaplan.sweep.points import Points

from .toy import CHIP, MODEL, toy

WHOLE = """kind: study
model: deepseek-v3
chips: [h100-sxm, h200-sxm]
devices: 8,16
isl: 1k:128k:log8
osl: [256, 1024]
concurrency: 1:4096:x2
tpot: 60ms
kv_dtype: bf16,fp8
memory_fraction: 0.9
plans: pareto
set:
  scale_out.bandwidth: x0.5,x1,x2
  model.kv_lora_rank: [256, 512]
"""


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    return str(path)


def test_a_file_and_options_ask_the_same(tmp_path: Path) -> None:
    by_file = study.build(study.of_file(written(tmp_path, WHOLE)))
    given: dict[str, Any] = {
        "model": "deepseek-v3", "chips": ["h100-sxm", "h200-sxm"], "devices": "8,16", "isl": "1k:128k:log8",
        "osl": "256,1024", "concurrency": "1:4096:x2", "tpot": "60ms", "kv_dtype": "bf16,fp8",
        "memory_fraction": "0.9", "plans": "pareto",
    }  # fmt: skip
    by_options = study.build(study.of_options(given, ["scale_out.bandwidth=x0.5,x1,x2", "kv_lora_rank=256,512"]))
    assert by_file == by_options
    assert by_file.digest() == by_options.digest()
    assert by_file.size == 2 * 3 * 2 * 2 * 8 * 2 * 13 * 2
    names = [axis.name for axis in by_file.varying()]
    assert names == [
        "model.kv_lora_rank", "chip", "chip.scale_out.bandwidth.factor", "devices", "pin.kv_dtype", "isl", "osl",
        "concurrency",
    ]  # fmt: skip


def test_points_are_the_product_of_the_axes_in_order() -> None:
    s = toy()
    seen = [tuple(s.point(i).values()) for i in range(s.size)]
    assert len(set(seen)) == s.size == 2 * 4 * 2 * 4
    assert [s.point(i)["concurrency"] for i in range(5)] == [1, 4, 16, 64, 1]
    assert s.loads == 4


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("isl: 1k:128k:log8", "isl: 1k:128k:lag8"), ":5:6: 'lag8' is not a number of tokens"),
        (("kind: study", "kind: chip"), ":1:7: the kind is 'chip'; expected kind: study"),
        (("devices: 8,16", "divices: 8,16"), ":4:1: unknown key 'divices'; did you mean 'devices'?"),
        (("devices: 8,16", "devices: 8,8"), ":4:10: 8 holds 8 twice"),
        (("tpot: 60ms", "tpot: 60"), ":8:7: '60' has no unit; expected a time"),
        (("h100-sxm", "h100-sxn"), ":3:8: unknown chip 'h100-sxn'; did you mean 'h100-sxm'?; known are"),
        (("deepseek-v3", "deepsek-v3"), ":2:8: unknown model 'deepsek-v3'"),
        (("plans: pareto", "plans: some"), ":11:8: 'some' is no plans; expected one of best, pareto, all"),
        (("memory_fraction: 0.9", "memory_fraction: 2"), ":10:18: above 0 and at most 1"),
        (("scale_out.bandwidth", "scale_out.bandwith"), ":13:23: no figure 'bandwith' in scale_out"),
        (("model.kv_lora_rank: [256, 512]", "kv_lora_rnk: 3"), ":14:16: no figure 'kv_lora_rnk'"),
        (("[256, 512]", "[256, -1]"), ":14:23: attention.mla.kv_lora_rank: got -1"),
        (("x0.5,x1,x2", "x0.5,1 GB/s"), ":13:24: scale_out.bandwidth has factors and values"),
        (("x0.5,x1,x2", "x0.5,x1e9"), ":13:24: scale_out.bandwidth.value:"),
        (("tpot: 60ms", "rate: 3"), ":8:7: rate and concurrency both fix the load"),
        (("isl: 1k:128k:log8", "isl: {a: 1}"), ":5:6: a value inside a value"),
        (("isl: 1k:128k:log8", "isl:"), ":5:"),
        (("set:\n", "set: 3\n#"), ":12:6: set: no mapping"),
    ],
)
def test_mistakes_have_a_place(tmp_path: Path, change: tuple[str, str], told: str) -> None:
    text = WHOLE.replace(*change, 1)
    if "set: 3" in text:
        text = text.split("#")[0]
    path = written(tmp_path, text)
    with pytest.raises(SpecError) as error:
        study.build(study.of_file(path))
    assert f"{path}{told}" in str(error.value)


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(SpecError) as error:
        toy(isl="0", osl="x", tp="banana", concurrency=None, rate="-1")
    assert [p.file for p in error.value.problems] == ["--tp", "--isl", "--osl", "--rate"]


def test_what_is_missing_is_named() -> None:
    with pytest.raises(SpecError) as error:
        study.build({})
    assert len(error.value.problems) == 3
    assert "no model is given; expected a MODEL, or 'model:' in a study" in str(error.value)


def test_swapped_words_are_told() -> None:
    with pytest.raises(MlaplanError, match="'h200-sxm' is a chip and 'deepseek-v3' is a model; expected MODEL CHIP"):
        study.build(study.of_options({"model": "h200-sxm", "chips": ["deepseek-v3"], "devices": "8"}))


def test_too_many_points() -> None:
    with pytest.raises(MlaplanError, match="points are too many"):
        toy(isl="1:10000:1", osl="1:10000:1", concurrency="1:100:1")


def test_figures_change_the_specs_of_their_points() -> None:
    s = toy(("scale_up.bandwidth=x0.5,x2", "heads=8,16", "memory.bandwidth=1 TB/s"))
    assert {axis.name for axis in s.axes} >= {"chip.scale_up.bandwidth.factor", "model.heads", "chip.memory.bandwidth"}
    points = Points(s)
    seen = set()
    for i in (0, s.size // 4, s.size // 2, s.size - 1):
        q, asked = points[i].q, points[i].asked
        assert q is not None
        assert float(q.setting.chip.scale_up.bandwidth) == 200e9 * asked["chip.scale_up.bandwidth.factor"]
        assert q.setting.model.attention["mla"].heads == asked["model.heads"]
        assert float(q.setting.chip.memory.bandwidth) == 1e12
        seen.add((asked["chip.scale_up.bandwidth.factor"], asked["model.heads"]))
    assert len(seen) == 4


def test_the_digest_follows_what_is_asked_and_what_is_read(tmp_path: Path) -> None:
    base = toy().digest()
    assert toy().digest() == base
    others = [toy(isl="128:1k:x4"), toy(tpot="2ms"), toy(objective="latency"), toy(plans="all"), toy(price="3"),
              toy(("memory.bandwidth=x2",))]  # fmt: skip
    chip = tmp_path / "toy-chip.yaml"
    chip.write_text(Path(CHIP).read_text().replace("100 TFLOPS", "101 TFLOPS"))
    faster = study.build(study.of_options({"model": MODEL, "chips": [str(chip)], "devices": "2"}))
    chip.write_text(Path(CHIP).read_text())
    slower = study.build(study.of_options({"model": MODEL, "chips": [str(chip)], "devices": "2"}))
    digests = {base, faster.digest(), slower.digest(), *(other.digest() for other in others)}
    assert len(digests) == 3 + len(others)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"tp": "3"}, "--tp 3 does not divide --devices 2"),
        ({"dcp": "2", "kv_layout": "replicated"}, "goes with --dcp 1"),
        ({"prefix": "512", "isl": "256"}, "--prefix 512: from 0 to 255 tokens"),
        ({"mtp": "1"}, "toy-model has no MTP layer"),
        ({"weight_dtype": "fp8"}, "quantising it is not modelled"),
    ],
)
def test_a_point_that_cannot_be_asked_says_why(given: dict[str, str], told: str) -> None:
    point = Points(toy(**given))[0]
    assert point.q is None
    assert told in str(point.problem)
