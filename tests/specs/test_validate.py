"""Every mistake at once, each at its line and column, in words. One edit of a good file per case."""

# ruff: noqa: E501 - messages stand here as they are read

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlaplan.errors import SpecError
from mlaplan.specs import source
from mlaplan.specs.chip import Chip
from mlaplan.specs.lookup import validate_file
from mlaplan.specs.model import Model
from mlaplan.specs.validate import build

FIXTURES = Path(__file__).parents[1] / "fixtures"
CHIP = (FIXTURES / "toy-chip.yaml").read_text()
MODEL = (FIXTURES / "toy-model.yaml").read_text()
INTERNALS = (
    "pydantic",
    "Input should",
    "Field required",
    "permitted",
    "input_value",
    "type=",
    "validation error",
)


def complaints(text: str, spec: type[Chip] | type[Model], file: str = "f.yaml") -> str:
    with pytest.raises(SpecError) as caught:
        build(spec, source.parse(text, file))
    assert not any(word in str(caught.value) for word in INTERNALS)
    return str(caught.value)


CHIP_CASES = [
    ("vendor: Nobody", "vendor:", "4:8: vendor: got an empty value; expected a text"),
    ("vendor: Nobody", "vendor: [a]", "4:9: vendor: got a list; expected a text"),
    ("vendor: Nobody", "vendor: ''", "4:9: vendor: is empty; expected a text"),
    ("vendor: Nobody\n", "", "1:1: missing key 'vendor'; expected a text"),
    ("vendor: Nobody", "vendro: Nobody", "4:1: unknown key 'vendro'; did you mean 'vendor'?"),
    (
        "vendor: Nobody",
        "vendor: Nobody\nzzz: 1",
        "5:1: unknown key 'zzz'; expected one of kind, name, title, vendor, unit, class, notes, names, cores, clock, "
        "peak, vector, memory, on_chip, dma, overheads, padding, scale_up, scale_out, host_link, efficiency, price, power",
    ),
    (
        "name: toy-chip",
        "name: Toy Chip",
        "2:7: name: 'Toy Chip' is not a plain name; expected lower-case letters, digits, '-', '_' and '.'",
    ),
    (
        "class: generic",
        "class: hopper",
        "6:8: class: 'hopper' is not known here; expected one of nvidia-ampere, nvidia-hopper, nvidia-blackwell, "
        "amd-cdna3, amd-cdna4, ascend, sophgo, generic; did you mean 'nvidia-hopper'?",
    ),
    (
        "{value: 100, source: made up, confidence: assumed}",
        "100",
        "7:8: cores: 100 stands where a figure with its source is needed; "
        'expected {value: 100, source: "...", confidence: datasheet}',
    ),
    (
        "{value: 100, source: made up,",
        "{value: 100,",
        "7:8: missing key 'source' in cores; expected a text",
    ),
    (
        "{value: 100, source: made up, confidence: assumed}",
        "{value: 100, source: made up, confidence: guess}",
        "7:50: cores.confidence: 'guess' is not known here; expected one of datasheet, measured, derived, assumed",
    ),
    (
        "value: 100,",
        "value: 0,",
        "7:16: cores.value: 0 is zero; expected a plain number above zero, or no such key",
    ),
    ("value: 100,", "value: -1,", "7:16: cores.value: -1 is negative; expected a plain number such as '128'"),
    (
        "value: 100,",
        "value: 1e9,",
        "7:16: cores.value: 1000000000.0 is too large to be real; expected a plain number between 1 and 100000",
    ),
    (
        "value: 100,",
        "value: true,",
        "7:16: cores.value: true is not a quantity; expected a plain number such as '128'",
    ),
    (
        "value: 1.5 GHz",
        "value: 1.5",
        "8:16: clock.value: 1.5 has no unit; expected a frequency such as '1.83 GHz'",
    ),
    (
        "value: 1.5 GHz",
        "value: .nan",
        "8:16: clock.value: nan is not a finite number; expected a frequency such as '1.83 GHz'",
    ),
    (
        "value: 1.5 GHz",
        "value: .inf",
        "8:16: clock.value: inf is not a finite number; expected a frequency such as '1.83 GHz'",
    ),
    (
        "  bf16: {value: 100 TFLOPS",
        "  bf61: {value: 100 TFLOPS",
        "10:3: unknown key 'bf61' in peak; expected one of fp32, tf32, bf16, fp16, fp8, int8, fp4, int4; "
        "did you mean 'bf16'?",
    ),
    (
        "value: 100 TFLOPS",
        "value: 100 GB/s",
        "10:17: peak.bf16.value: '100 GB/s' is a rate in bytes per second; "
        "expected a compute rate such as '989 TFLOPS'",
    ),
    (
        "value: 100 TFLOPS",
        "value: 989e15 FLOPS",
        "10:17: peak.bf16.value: '989e15 FLOPS' is too large to be real; "
        "expected a compute rate between 1 GFLOPS and 100 PFLOPS",
    ),
    (
        "capacity: {value: 80 GB,",
        "capacity: {value: 80 GB/s,",
        "14:21: memory.capacity.value: '80 GB/s' is a rate in bytes per second; "
        "expected a size in bytes such as '80 GB'",
    ),
    (
        "value: 80 GB,",
        "value: 80 B,",
        "14:21: memory.capacity.value: '80 B' is too small to be real; "
        "expected a size in bytes between 100 MB and 10 TB",
    ),
    (
        "value: 80 GB,",
        "value: 80 gb,",
        "14:21: memory.capacity.value: '80 gb' has the unknown unit 'gb'; "
        "expected a size in bytes such as '80 GB'; did you mean '80 GB'?",
    ),
    (
        "  bandwidth: {value: 2 TB/s,",
        "  bandwith: {value: 2 TB/s,",
        "15:3: unknown key 'bandwith' in memory; expected one of type, capacity, marketed, bandwidth; "
        "did you mean 'bandwidth'?",
    ),
    (
        "low: 1.8 TB/s",
        "low: 2.05 TB/s",
        "15:14: memory.bandwidth: the range 2.05 TB/s to 2.10 TB/s does not hold 2.00 TB/s; "
        "expected low <= value <= high",
    ),
    ("  - name: l2\n    scope", "  - scope", "17:5: missing key 'name' in on_chip[0]; expected a text"),
    (
        "scope: chip",
        "scope: chips",
        "18:12: on_chip[0].scope: 'chips' is not known here; expected one of core, chip; did you mean 'chip'?",
    ),
    (
        "chips_per_node: 8",
        'chips_per_node: "8"',
        "26:19: scale_up.chips_per_node: got '8'; expected a whole number; write it without quotes",
    ),
    (
        "chips_per_node: 8",
        "chips_per_node: 0",
        "26:19: scale_up.chips_per_node: got 0; expected a whole number of at least 1",
    ),
    (
        "chips_per_node: 8",
        "chips_per_node: true",
        "26:19: scale_up.chips_per_node: got true; expected a whole number",
    ),
    (
        "chips_per_node: 8",
        "chips_per_node: 8.5",
        "26:19: scale_up.chips_per_node: got 8.5; expected a whole number",
    ),
    ("  chips_per_node: 8\n", "", "24:3: missing key 'chips_per_node' in scale_up; expected a whole number"),
    (
        "topology: switch",
        "topology: ring_chords",
        "24:3: missing key 'chords' in scale_up, whose topology is ring_chords; expected pairs such as [[0, 4]]",
    ),
    (
        "topology: switch",
        "topology: ring\n  ring_order: [0, 1, 2]",
        "26:15: scale_up.ring_order: does not name each chip once; expected the numbers 0 to 7",
    ),
    (
        "topology: switch",
        "topology: ring_chords\n  chords: [[0, 4], [1, 9]]",
        "26:20: scale_up.chords[1]: [1, 9] does not join two chips; expected two numbers from 0 to 7",
    ),
    (
        "topology: switch",
        "topology: ring_chords\n  chords: [[0, 4], [1]]",
        "26:20: scale_up.chords[1]: has 1 entry; expected a list of 2",
    ),
    (
        "topology: switch",
        "topology: full_mesh\n  group: 3",
        "26:10: scale_up.group: 8 chips do not split into groups of 3; expected a divisor of 8",
    ),
    (
        "ranks: [2, 4, 8]",
        "ranks: [2, 4]",
        "30:7: scale_up.collectives.all_reduce: the columns differ in length: ranks 2, alpha 3, bandwidth 3; "
        "expected one alpha and one bandwidth for each rank count",
    ),
    (
        "ranks: [2, 4, 8]",
        "ranks: [8, 4, 2]",
        "30:7: scale_up.collectives.all_reduce: the rank counts do not rise from 2 on; "
        "expected ranks in ascending order, such as [2, 4, 8]",
    ),
    (
        "alpha: [7 us, 10 us,",
        "alpha: [7 us, 10 GB,",
        "31:21: scale_up.collectives.all_reduce.alpha[1]: '10 GB' is a size in bytes; "
        "expected a time such as '17.4 us'",
    ),
    (
        "    all_reduce:",
        "    allreduce:",
        "29:5: unknown key 'allreduce' in scale_up.collectives; expected one of all_reduce, all_reduce_custom, "
        "all_reduce_custom_eager, all_reduce_fused, all_gather, reduce_scatter, all_to_all, dispatch, combine, send; "
        "did you mean 'all_reduce'?",
    ),
    (
        "compute: 0.75",
        "compute: 1.75",
        "38:21: efficiency.gemm.bf16.compute: 1.75 is too large to be real; expected a fraction above 0 and up to 1",
    ),
    (
        "norm: 3",
        "norm: soft",
        "38:60: efficiency.gemm.bf16.norm: 'soft' is not the exponent of a smooth maximum; "
        "expected a number from 1 to 100, or 'hard'",
    ),
    (
        "memory:\n",
        "memory: 80 GB\nx:\n",
        "12:9: memory: got '80 GB'; expected a mapping with type, capacity, marketed, bandwidth",
    ),
    ("on_chip:\n", "on_chip: {a: 1}\nx:\n", "16:10: on_chip: got a mapping; expected a list"),
]


@pytest.mark.parametrize(("good", "bad", "message"), CHIP_CASES)
def test_a_bad_chip_is_told_at_its_place(good: str, bad: str, message: str) -> None:
    assert CHIP.count(good) >= 1
    assert f"f.yaml:{message}" in complaints(CHIP.replace(good, bad, 1), Chip).splitlines()


MODEL_CASES = [
    (
        "    kind: mla",
        "    kind: mqa",
        "10:11: attention.mla.kind: 'mqa' is not known here; expected one of mla, gqa; did you mean 'mla'?",
    ),
    ("    kind: mla\n", "", "10:5: missing key 'kind' in attention.mla; expected one of mla, gqa"),
    (
        "    heads: 8",
        "    head: 8",
        "11:5: unknown key 'head' in attention.mla; expected one of kind, heads, q_lora_rank, kv_lora_rank, "
        "qk_nope_head_dim, qk_rope_head_dim, v_head_dim, bias, sparse; did you mean 'heads'?",
    ),
    ("    heads: 8", "    heads: 8.0", "11:12: attention.mla.heads: got 8.0; expected a whole number"),
    (
        "  mla:\n",
        "  mla: 3\n  x:\n",
        "9:8: attention.mla: got 3; expected a mapping of kind mla or gqa",
    ),
    (
        "attention: [mla], ffn: [dense]",
        "attention: [mal], ffn: [dense]",
        "20:28: layers[0].attention[0]: no attention kind is named 'mal'; expected one of mla; did you mean 'mla'?",
    ),
    ("ffn: [dense]", "ffn: dense", "20:39: layers[0].ffn: got 'dense'; expected a list"),
    (
        "ffn: [dense]",
        "ffn: [moe]",
        "17:10: ffn.dense: is used by no layer; expected a layer that names it",
    ),
    (
        "experts_per_token: 2",
        "experts_per_token: 20",
        "18:76: ffn.moe.experts_per_token: a token cannot choose 20 of 16 experts; expected at most 16",
    ),
    (
        "experts_per_token: 2",
        "experts_per_token: 2, groups: 3",
        "18:87: ffn.moe.groups: 16 experts do not split into 3 equal groups; expected a divisor of 16",
    ),
    (
        "experts_per_token: 2",
        "experts_per_token: 2, shared_experts: 1",
        "18:8: ffn.moe: shared_experts and shared_intermediate_size must both be given, or neither; "
        "expected the number of shared experts and their total intermediate size",
    ),
    ("  default: bf16", "  default: bf17", "23:12: weights.default: 'bf17' is not known here; "
     "expected one of fp32, fp16, bf16, fp8, int8, fp4, int4; did you mean 'bf16'?"),
    ("  default: bf16", "  default: fp8\n  block: [128]", "24:10: weights.block: has 1 entry; expected a list of 2"),
    ("layers:\n", "layers: []\nx:\n", "19:9: layers: is empty; expected at least one entry"),
    ("hidden_size: 256", "hidden_size: ten", "5:14: hidden_size: got 'ten'; expected a whole number"),
]  # fmt: skip


@pytest.mark.parametrize(("good", "bad", "message"), MODEL_CASES)
def test_a_bad_model_is_told_at_its_place(good: str, bad: str, message: str) -> None:
    assert MODEL.count(good) >= 1
    assert f"f.yaml:{message}" in complaints(MODEL.replace(good, bad, 1), Model).splitlines()


def test_all_mistakes_of_a_file_are_told_in_its_order() -> None:
    text = CHIP
    for good, bad, _ in CHIP_CASES[:1] + CHIP_CASES[11:12] + CHIP_CASES[20:21] + CHIP_CASES[27:28]:
        text = text.replace(good, bad, 1)
    lines = complaints(text, Chip).splitlines()
    assert [line.split(": ")[0] for line in lines] == [
        "f.yaml:4:8",
        "f.yaml:7:16",
        "f.yaml:10:17",
        "f.yaml:18:12",
    ]


def test_a_misspelt_required_key_is_one_mistake() -> None:
    assert len(complaints(CHIP.replace("vendor:", "vendro:"), Chip).splitlines()) == 1


def test_mistakes_of_fields_and_of_references_are_told_together() -> None:
    text = MODEL.replace("hidden_size: 256", "hidden_size: -1").replace("ffn: [moe]", "ffn: [mor]")
    lines = complaints(text, Model).splitlines()
    assert lines[0].startswith("f.yaml:5:14: hidden_size: got -1")
    assert "f.yaml:21:40: layers[1].ffn[0]: no ffn kind is named 'mor'; expected one of dense, moe; " \
        "did you mean 'moe'?" in lines  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: chip\n", "missing key 'name'; expected a text"),
        ("kind: chop\n", "1:7: unknown kind 'chop'; expected 'kind: chip', 'kind: model', "
         "or a Hugging Face config.json; did you mean 'chip'?"),
        ("replicas: 1\n", "1:1: neither a chip nor a model; expected 'kind: chip', 'kind: model', "
         "or a Hugging Face config.json"),
    ],
)  # fmt: skip
def test_files_are_told_apart_by_content(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(text)
    assert any(message in problem.text() for problem in validate_file(path))


def test_good_files_have_no_problem() -> None:
    assert validate_file(FIXTURES / "toy-chip.yaml") == []
    assert validate_file(FIXTURES / "toy-model.yaml") == []


_LINES = CHIP.splitlines()


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, len(_LINES) - 1),
    st.sampled_from(["drop", "twice", "empty", "value", "text"]),
    st.one_of(
        st.sampled_from(["-1", "0", ".nan", "[]", "{}", "true", "'x'", "1e99", "80 GB", "3 us", "*a", "&a x"]),
        st.text(max_size=12),
    ),
)
def test_any_edit_of_a_chip_is_a_chip_or_told(line: int, how: str, text: str) -> None:
    lines = list(_LINES)
    key = lines[line].partition(":")[0]
    if how == "drop":
        del lines[line]
    elif how == "twice":
        lines.insert(line, lines[line])
    else:
        lines[line] = {"empty": f"{key}:", "value": f"{key}: {text}", "text": text}[how]
    try:
        chip = build(Chip, source.parse("\n".join(lines), "f.yaml"))
    except SpecError as error:
        for problem in error.problems:
            assert problem.line is not None
            assert not any(word in problem.message for word in INTERNALS)
    else:
        assert float(chip.memory.capacity) > 0
