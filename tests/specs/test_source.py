"""Text to data with positions: what YAML and JSON mean here, and what is refused and where."""

# ruff: noqa: E501 - messages stand here as they are read

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlaplan.errors import SpecError, Unreadable
from mlaplan.specs import source

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10)
)

BAD_YAML = [
    ("", "f.yaml:1:1: the file is empty; expected a mapping of keys to values"),
    ("# only a comment\n", "f.yaml:1:1: the file is empty; expected a mapping of keys to values"),
    ("just text", "f.yaml:1:1: the document is a single value; expected a mapping of keys to values"),
    ("- 1\n- 2\n", "f.yaml:1:1: the document is a list; expected a mapping of keys to values"),
    ("a: 1\nb: 2\na: 3\n", "f.yaml:3:1: duplicate key 'a', first given on line 1; expected each key once"),
    (
        "a: 1\na: 2\nb: {c: 1, c: 2}\n",
        "f.yaml:2:1: duplicate key 'a', first given on line 1; expected each key once\n"
        "f.yaml:3:11: duplicate key 'c', first given on line 3; expected each key once",
    ),
    ("a: [1, 2\nb: 3", "f.yaml:1:4: not valid YAML: a list opened with '[' is not closed; expected ']'"),
    ("a: {b: 1", "f.yaml:1:4: not valid YAML: a mapping opened with '{' is not closed; expected '}'"),
    (
        "a: b: c",
        "f.yaml:1:5: not valid YAML: a second ':' on this line; "
        "expected one 'key: value', or quotes around the text",
    ),
    ('a: "x', "f.yaml:1:4: not valid YAML: a quoted text is not closed; expected a closing quote"),
    ("\ta: 1", "f.yaml:1:1: a tab is used as indent; expected spaces"),
    ("a:\n\tb: 1", "f.yaml:2:1: a tab is used as indent; expected spaces"),
    ("a:\n  - 1\n - 2\n", "f.yaml:3:2: not valid YAML: this line does not line up with the lines above; "
     "expected the same indent"),
    ("a: 1\nb\nc: 1", "f.yaml:3:1: not valid YAML: a key has no ':' after it; expected 'key: value'"),
    ("a: @x", "f.yaml:1:4: not valid YAML: a value starts with a tab or a special character; "
     "expected quotes around the text"),
    ("a: *b", "f.yaml:1:4: the alias '*b' refers to no anchor above; expected '&b' before it"),
    ("a: &a [*a]", "f.yaml:1:8: the alias '*a' stands inside the value it refers to"),
    ("a: &a\n  <<: *a\n", "f.yaml:2:7: the alias '*a' stands inside the value it refers to"),
    ("? [a]\n: 1", "f.yaml:1:3: a key is not plain text; expected a word followed by a colon"),
    ("a: !!python/object:os.system x",
     "f.yaml:1:4: the tag 'tag:yaml.org,2002:python/object:os.system' is not used here; expected a plain value"),
    ("a: 1\n---\nb: 1", "f.yaml:2:1: a second document starts here; expected one document in a file"),
    ("a: 012", "f.yaml:1:4: the number 012 is written in another base; expected a decimal number, or quotes"),
    ("a: 0x10", "f.yaml:1:4: the number 0x10 is written in another base; expected a decimal number, or quotes"),
    ("a: x\0y", "f.yaml:1:5: the text holds a NUL character; expected plain text"),
    ("a: 1\nb: x\x07y", "f.yaml:2:5: the text holds a control character U+0007; expected plain text"),
    (BOMB, "f.yaml: expands to more than 50000 values; expected a spec without nested aliases"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD_YAML)
def test_bad_yaml_is_told_at_its_place(text: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        source.parse(text, "f.yaml")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "a": 2}', "c.json:1:10: duplicate key 'a', first given on line 1; expected each key once"),
        ('{"a": [1, 2,]}', "c.json:1:13: not valid JSON: a comma stands before ']'; "
         "expected no comma after the last entry"),
        ('{"a": True}', "c.json:1:7: not valid JSON: 'True' is not a JSON value; "
         "expected true, false, null or a text in quotes"),
        ('{"a" 1}', "c.json:1:6: not valid JSON: unexpected '1'; expected ':' after the key"),
        ("{'a': 1}", "c.json:1:2: not valid JSON: unexpected '''; "
         'expected a key in double quotes such as "hidden_size"'),
        ('{"a": 1\n "b": 2}', "c.json:2:2: not valid JSON: unexpected '\"'; expected ',' or '}'"),
        ('{"a": [1', "c.json:1:9: not valid JSON: the file ends too early; expected ',' or ']'"),
        ('{"a": "x', "c.json:1:7: not valid JSON: a text is not closed; expected a closing double quote"),
        ('{"a": 1} x', "c.json:1:10: not valid JSON: text after the end of the JSON value; "
         "expected the end of the file"),
        ("[1]", "c.json:1:1: the document is a list; expected a mapping of keys to values"),
        ("[" * 1000, "c.json:1:34: not valid JSON: values are nested more than 32 deep; "
         "expected a flatter document"),
        ('{"a": ' + "9" * 41 + "}", "c.json:1:7: not valid JSON: a number of more than 40 characters; "
         "expected a shorter number"),
    ],
)  # fmt: skip
def test_bad_json_is_told_at_its_place(text: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        source.parse(text, "c.json")
    assert str(caught.value) == message


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_deep_nesting_is_refused_without_recursion(opening: str) -> None:
    with pytest.raises(SpecError, match="nested more than 32 deep"):
        source.parse(opening * 5000, "f.yaml")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"a: 1\nb: \xff\n", "f.yaml:2:4: byte 0xff is not UTF-8; expected UTF-8 text"),
        ("a: 1".encode("utf-16"), "f.yaml: is encoded in UTF-16; expected UTF-8"),
        (b"a: caf\xe9", "f.yaml:1:7: byte 0xe9 is not UTF-8; expected UTF-8 text"),
    ],
)
def test_other_encodings_are_refused(raw: bytes, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        source.parse(raw, "f.yaml")
    assert str(caught.value) == message


def test_large_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_bytes(b"a: " + b"x" * (1 << 20))
    with pytest.raises(SpecError, match=r"big\.yaml: is larger than 1 MiB; expected a spec of at most 1 MiB"):
        source.read(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match=r"gone\.yaml: no such file"):
        source.read(tmp_path / "gone.yaml")
    with pytest.raises(Unreadable, match="is a folder; expected a YAML or JSON file"):
        source.read(tmp_path)
    with pytest.raises(Unreadable, match="cannot be read"):
        source.read("a\0b.yaml")
    if os.geteuid() != 0:
        locked = tmp_path / "locked.yaml"
        locked.write_text("a: 1")
        locked.chmod(0)
        with pytest.raises(Unreadable, match="no permission"):
            source.read(locked)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("true", True),
        ("null", None),
        ("~", None),
        ("", None),
        ("1e9", 1e9),
        ("671.03e9", 671.03e9),
        ("1_000", 1000),
        ("-3", -3),
        (".5", 0.5),
        (".inf", float("inf")),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("3.35 TB/s", "3.35 TB/s"),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("[1, {b: x}]", [1, {"b": "x"}]),
        ("|\n  two\n  lines\n", "two\nlines\n"),
        ("9" * 41, "9" * 41),
    ],
)
def test_scalars_mean_what_a_person_expects(text: str, value: Any) -> None:
    data = source.parse(f"a: {text}", "f.yaml").data
    assert data == {"a": value}
    assert type(data["a"]) is type(value)


def test_aliases_are_copies() -> None:
    data = source.parse("a: &x {b: 1}\nc: *x\n", "f.yaml").data
    data["a"]["b"] = 2
    assert data["c"] == {"b": 1}


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_positions_do_not_depend_on_newlines_or_a_byte_order_mark(newline: str, start: str) -> None:
    raw = (start + newline.join(["a: 1", "list:", "  - x", "  - {y: 2, z: µ}"])).encode()
    document = source.parse(raw, "f.yaml")
    assert document.values[("a",)] == (1, 4)
    assert document.keys[("list",)] == (2, 1)
    assert document.values[("list", 0)] == (3, 5)
    assert document.keys[("list", 1, "z")] == (4, 12)
    assert document.values[("list", 1, "z")] == (4, 15)


def test_json_positions() -> None:
    document = source.parse('{"a": [1,\n  {"b": 2.5}],\n "c": null}', "c.json")
    assert document.data == {"a": [1, {"b": 2.5}], "c": None}
    assert document.values[("a", 1)] == (2, 3)
    assert document.keys[("a", 1, "b")] == (2, 4)
    assert document.values[("a", 1, "b")] == (2, 9)
    assert document.values[("c",)] == (3, 7)


@given(st.text(max_size=200) | st.binary(max_size=200), st.sampled_from(["f.yaml", "f.json"]))
def test_any_text_is_read_or_refused(raw: str | bytes, file: str) -> None:
    try:
        document = source.parse(raw, file)
    except SpecError as error:
        assert error.problems
        assert all("\n" not in problem.text() for problem in error.problems)
    else:
        assert isinstance(document.data, dict)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, width=32) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(min_size=1, max_size=6), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(
    st.dictionaries(st.text(min_size=1, max_size=6), _JSON, min_size=1, max_size=4),
    st.sampled_from([None, 2]),
)
def test_json_is_read_as_the_standard_library_reads_it(data: dict[str, Any], indent: int | None) -> None:
    text = json.dumps(data, indent=indent)
    assert source.parse(text, "f.json").data == json.loads(text)
