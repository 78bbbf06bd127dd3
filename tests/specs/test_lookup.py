"""Names and paths to files: what shadows what, other names, and names that nothing has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlaplan.errors import SpecError, UnknownName, Unreadable
from mlaplan.specs import lookup
from mlaplan.specs.lookup import chip_names, kind_of, load_chip, load_model, model_names

FIXTURES = Path(__file__).parents[1] / "fixtures"
CHIP = (FIXTURES / "toy-chip.yaml").read_text()
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "max_position_embeddings": 1024,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 1000,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(path: str, name: str, extra: str = "") -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(CHIP.replace("name: toy-chip", f"name: {name}") + extra)


def test_a_path_is_taken_as_it_is() -> None:
    put("elsewhere/mine.yaml", "mine")
    assert load_chip("elsewhere/mine.yaml").origin == "elsewhere/mine.yaml"
    assert load_chip(str(Path("elsewhere/mine.yaml").resolve())).name == "mine"


def test_a_file_without_a_suffix_is_a_path() -> None:
    put("mine", "mine")
    assert load_chip("mine").origin == "mine"


def test_the_folder_here_shadows_what_ships() -> None:
    shipped = load_chip("h100-sxm")
    assert shipped.title != "Toy chip"
    put("hardware/h100-sxm.yaml", "h100-sxm")
    mine = load_chip("h100-sxm")
    assert (mine.title, mine.origin) == ("Toy chip", "hardware/h100-sxm.yaml")
    assert dict(chip_names())["h100-sxm"] == "hardware/h100-sxm.yaml"


def test_the_repository_wins_over_a_stale_copy_in_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "repo" / "mlaplan"
    monkeypatch.setattr(lookup, "PACKAGE", package)
    put(str(package / "_data" / "hardware" / "stale.yaml"), "stale")
    put(str(tmp_path / "repo" / "hardware" / "fresh.yaml"), "fresh")
    # without pyproject.toml the folder beside the package is some other package's
    assert [name for name, _ in chip_names()] == ["stale"]
    (tmp_path / "repo" / "pyproject.toml").write_text("")
    assert [name for name, _ in chip_names()] == ["fresh"]


def test_other_names_and_case() -> None:
    put("hardware/mine.yaml", "mine", 'names: [my-card, "My Card 80GB"]\n')
    for name in ("mine", "MINE", "my-card", "my card 80gb"):
        assert load_chip(name).name == "mine"


def test_a_name_that_two_files_claim_is_refused() -> None:
    put("hardware/one.yaml", "one", "names: [both]\n")
    put("hardware/two.yaml", "two", "names: [both]\n")
    with pytest.raises(SpecError, match=r"both: names more than one chip; expected one of one, two"):
        load_chip("both")


def test_an_unknown_name_shows_the_nearest_and_the_list() -> None:
    put("hardware/mine.yaml", "mine")
    with pytest.raises(UnknownName) as caught:
        load_chip("mime")
    assert str(caught.value).startswith("unknown chip 'mime'; did you mean 'mine'?; known are ")
    assert "mine" in caught.value.known


@pytest.mark.parametrize(("name", "best"), [("h10", "h100-sxm"), ("H200", None), ("h200_sxm", "h200-sxm")])
def test_the_nearest_of_a_beginning(name: str, best: str | None) -> None:
    if best is None:
        assert load_chip(name).name == "h200-sxm"
        return
    with pytest.raises(UnknownName, match=rf"did you mean '{best}'"):
        load_chip(name)


@pytest.mark.parametrize("name", ["", "  ", "a\0b"])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(UnknownName):
        load_chip(name)


def test_a_missing_path_is_not_looked_up_as_a_name() -> None:
    with pytest.raises(Unreadable, match=r"h100-sxm\.yaml: no such file"):
        load_chip("h100-sxm.yaml")


def test_the_wrong_kind_of_file() -> None:
    with pytest.raises(SpecError, match=r"toy-model\.yaml:1:7: this is a model file; expected a chip file"):
        load_chip(str(FIXTURES / "toy-model.yaml"))
    with pytest.raises(SpecError, match=r"toy-chip\.yaml:1:7: this is a chip file; expected a model file"):
        load_model(str(FIXTURES / "toy-chip.yaml"))


def test_a_config_json_or_its_folder_is_a_model() -> None:
    Path("some-model").mkdir()
    Path("some-model/config.json").write_text(json.dumps(CONFIG, indent=1))
    for name in ("some-model/config.json", "some-model", "./some-model"):
        assert load_model(name).origin == str(Path("some-model/config.json"))
        assert load_model(name).hidden_size == 64
        assert kind_of("./some-model") == "model"
    with pytest.raises(Unreadable, match="is a folder; expected a YAML or JSON file"):
        load_model(".")
    with pytest.raises(SpecError, match=r"this is a model's config\.json; expected a chip file"):
        load_chip("some-model/config.json")


def test_a_broken_file_does_not_hide_the_others() -> None:
    put("hardware/mine.yaml", "mine", "names: [my-card]\n")
    Path("hardware/broken.yaml").write_text("a: [1")
    assert load_chip("my-card").name == "mine"
    with pytest.raises(SpecError, match=r"broken\.yaml:1:4: not valid YAML"):
        load_chip("broken")


def test_kinds_are_told_apart() -> None:
    assert kind_of("h100-sxm") == "chip"
    assert kind_of("deepseek-v3") == "model"
    with pytest.raises(UnknownName, match="unknown chip or model 'nothing-like-it'"):
        kind_of("nothing-like-it")


def test_every_shipped_file_is_known_by_its_own_name() -> None:
    for name, file in chip_names():
        assert load_chip(file).name == name
    for name, file in model_names():
        assert load_model(file).name == name


@pytest.mark.parametrize("name", ["~20", "~no-such-user/chip.yaml"])
def test_the_home_of_nobody_is_no_file(name: str) -> None:
    with pytest.raises(Unreadable, match="no such file"):
        load_chip(name)


def test_a_name_too_long_for_a_file_is_an_unknown_name() -> None:
    with pytest.raises(UnknownName):
        load_chip("h2" * 400)


def test_a_chip_file_that_goes_by_another_name_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers say what stands in the file, so a copy that kept its name, or lost it, would pass for another chip."""
    text = Path(lookup.find("chip", "h100-sxm")).read_text()
    folder = tmp_path / "hardware"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    (folder / "h100-sxm.yaml").write_text(text.replace("name: h100-sxm", "name: foo", 1))
    (told,) = load_chip("h100-sxm").warnings
    assert (
        told.where().startswith("hardware/h100-sxm.yaml:") and "calls the chip 'foo', and so do answers" in told.text()
    )
    (tmp_path / "mine.yaml").write_text(text)
    (told,) = load_chip("./mine.yaml").warnings
    assert "mine.yaml calls the chip 'h100-sxm'" in told.text() and "expected 'mine'" in told.text()
    # under its own name, and under one that nothing else has
    (folder / "mine.yaml").write_text(text.replace("name: h100-sxm", "name: mine", 1))
    (tmp_path / "other.yaml").write_text(text.replace("name: h100-sxm", "name: mine-too", 1))
    assert load_chip("mine").warnings == load_chip("./other.yaml").warnings == ()
