"""A model from its file: the schedule, what a part is stored as, and shapes that contradict each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from mlaplan.specs import source
from mlaplan.specs.lookup import load_model
from mlaplan.specs.model import GQA, MLA, Model
from mlaplan.specs.validate import build

FILE = Path(__file__).parents[1] / "fixtures" / "toy-model.yaml"
TEXT = FILE.read_text()


def edited(*edits: tuple[str, str]) -> Model:
    text = TEXT
    for good, bad in edits:
        assert good in text
        text = text.replace(good, bad, 1)
    return build(Model, source.parse(text, "f.yaml"))


def test_the_schedule_is_kept_in_order() -> None:
    model = load_model(str(FILE))
    assert [(run.count, run.attention, run.ffn) for run in model.layers] == [
        (1, ("mla",), ("dense",)),
        (3, ("mla",), ("moe",)),
    ]
    assert model.layer_count == 4
    assert isinstance(model.attention["mla"], MLA)
    assert model.attention["mla"].q_lora_rank is None


def test_layers_may_hold_several_kinds() -> None:
    model = edited(("attention: [mla], ffn: [moe]", "attention: [mla, mla], ffn: [dense, dense, moe]"))
    assert model.layers[1].attention == ("mla", "mla")
    assert model.layers[1].ffn == ("dense", "dense", "moe")


def test_other_attention() -> None:
    model = edited(
        (
            TEXT[TEXT.index("  mla:\n") : TEXT.index("ffn:")],
            "  gqa: {kind: gqa, heads: 8, kv_heads: 2, head_dim: 32}\n",
        ),
        ("[mla]", "[gqa]"),
        ("[mla]", "[gqa]"),
    )
    assert model.attention["gqa"] == GQA(kind="gqa", heads=8, kv_heads=2, head_dim=32)


def test_a_part_without_its_own_dtype_has_the_default() -> None:
    model = edited(("  default: bf16", "  default: fp8\n  block: [128, 128]\n  attention: bf16"))
    assert model.weight_dtype("routed") == "fp8"
    assert model.weight_dtype("attention") == "bf16"
    assert model.weight_dtype("lm_head") == "bf16"
    assert model.weights.block == (128, 128)


def test_mtp_names_kinds_of_its_own() -> None:
    mtp = "mtp: {layers: 1, attention: mla, ffn: moe, max_draft: 2,\n"
    mtp += "  acceptance: {value: 0.8, low: 0.6, high: 0.9, source: made up, confidence: assumed}}\nweights:"
    model = edited(("weights:", mtp))
    assert model.mtp is not None
    assert model.mtp.acceptance.bounds == (0.6, 0.8, 0.9)


@pytest.mark.parametrize("change", [{"layers": []}, {"ffn": {"dense": {"kind": "dense", "intermediate_size": 1}}}])
def test_a_model_made_in_code_is_held_to_the_same_rules(change: dict[str, Any]) -> None:
    data = source.parse(TEXT, "f.yaml").data
    Model.model_validate(data)
    with pytest.raises(ValidationError):
        Model.model_validate({**data, **change})


def test_a_model_written_as_json_is_read_back_the_same() -> None:
    model = load_model(str(FILE))
    again = Model.model_validate(model.model_dump(mode="json", exclude_none=True))
    assert again.model_dump() == model.model_dump()
