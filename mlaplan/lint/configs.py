"""An engine's own config file to a launch: vLLM's and SGLang's `--config`, TensorRT-LLM's extra options."""

from __future__ import annotations

from mlaplan.lint.documents import ENGINE_KEYS
from mlaplan.lint.launch import Launch, Setting
from mlaplan.lint.text import Source, Word
from mlaplan.lint.tree import Node, word

NESTED = {"kv_cache_config", "moe_config", "cuda_graph_config"}  # sections that only TensorRT-LLM has
TRUE, FALSE = {"true", "True", "TRUE", "yes", "on"}, {"false", "False", "FALSE", "no", "off"}


def engine_of_keys(root: Node, named: str | None) -> str | None:
    """The engine whose own keys stand at the top of a document, `named` where these leave it open, or None."""
    if root.kind != "map":
        return None
    written = {key.text for key, _ in root.pairs}
    if written & NESTED:
        return "trtllm"
    keys = {key.replace("_", "-") for key in written}
    found = {engine: len(keys & own) for engine, own in ENGINE_KEYS.items() if keys & own}
    if named in found:
        return named
    best = max(found.values(), default=0)
    names = [engine for engine, count in found.items() if count == best]
    return names[0] if len(names) == 1 else None


def read_config(root: Node, source: Source, engine: str | None) -> Launch | None:
    """The launch that a config file amounts to."""
    found = engine_of_keys(root, engine)
    if found is None or not root.pairs:
        return None
    anchor = word(root.pairs[0][0], source)
    if found == "trtllm":
        return Launch(found, anchor, [], settings=read_settings(root, source))
    return Launch(found, anchor, list(flags_of(root, source)))


def flags_of(root: Node, source: Source) -> list[Word]:
    """`key: value` as `--key value`; true is the flag alone, and false leaves it out."""
    out: list[Word] = []
    for key, value in root.pairs:
        name = word(key, source)
        flag = Word(f"--{name.text}", name.file, name.line, name.col, name.width)
        if value.kind == "scalar":
            if value.style is None and value.text in FALSE:
                continue
            out.append(flag)
            if value.style is not None or value.text not in TRUE:
                out.append(word(value, source))
        elif value.kind == "list":
            out += [flag, *(word(item, source) for item in value.items if item.kind == "scalar")]
        else:
            out += [flag, Word(as_json(value), source.name, value.line, value.col)]
    return out


def read_settings(root: Node, source: Source, path: str = "") -> dict[str, Setting]:
    """Every value of an options file by its dotted key; sections stand for themselves too."""
    out: dict[str, Setting] = {}
    for key, value in root.pairs:
        here = f"{path}{key.text}"
        out[here] = Setting(None if value.kind == "map" else plain(value), word(key, source))
        if value.kind == "map":
            out |= read_settings(value, source, f"{here}.")
    return out


def as_json(node: Node) -> str:
    """A tree as the JSON text that a flag would hold."""
    import json

    return json.dumps(plain(node))


def plain(node: Node) -> object:
    """A tree as plain data, scalars by YAML's usual words."""
    if node.kind == "list":
        return [plain(item) for item in node.items]
    if node.kind == "map":
        return {key.text: plain(value) for key, value in node.pairs}
    if node.style is not None:
        return node.text
    if node.text in TRUE or node.text in FALSE:
        return node.text in TRUE
    for kind in (int, float):
        try:
            return kind(node.text[:40])
        except ValueError:
            continue
    return None if node.text in ("", "~", "null") else node.text
