"""A model: shapes as a schedule of layer kinds. Written in `models/*.yaml`, see docs/schema/model.json."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeGuard

from mlaplan.specs.figure import (
    Contradiction,
    Count,
    CountOrZero,
    Figure,
    Flag,
    Fraction,
    Parameters,
    Text,
    contradiction,
)
from mlaplan.specs.marks import AtLeast, ByKind
from mlaplan.specs.spec import Spec, field

WeightDtype = Literal["fp32", "fp16", "bf16", "fp8", "int8", "fp4", "int4"]
WeightPart = Literal["embedding", "lm_head", "router", "attention", "dense", "routed", "shared", "indexer", "mtp"]


class Indexer(Spec):
    """The small attention that selects which tokens the sparse core reads; one key a token."""

    heads: Count
    head_dim: Count


class Sparse(Spec):
    """Attention over min(context, top_k) tokens. Without an indexer a layer reuses the last selection."""

    top_k: Count
    indexer: Indexer | None = None


class MLA(Spec):
    """Multi-head latent attention: one latent and one rope key per token, shared by all heads."""

    kind: Literal["mla"]
    heads: Count
    q_lora_rank: Count | None = None
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: Count
    v_head_dim: Count
    bias: Flag = False
    sparse: Sparse | None = None


class GQA(Spec):
    """Grouped-query attention; kv_heads equal to heads is multi-head, 1 is multi-query."""

    kind: Literal["gqa"]
    heads: Count
    kv_heads: Count
    head_dim: Count
    qkv_bias: Flag = False
    qk_norm: Flag = False


class DenseFFN(Spec):
    """A gated feed-forward network: gate, up and down."""

    kind: Literal["dense"]
    intermediate_size: Count


class MoEFFN(Spec):
    """Routed experts, each gated; `shared_intermediate_size` is the total of all shared experts."""

    kind: Literal["moe"]
    intermediate_size: Count
    experts: Count
    experts_per_token: Count
    zero_experts: CountOrZero = field(default=0, description="experts a token may choose that compute nothing")
    shared_experts: CountOrZero = 0
    shared_intermediate_size: CountOrZero = 0
    groups: Count = 1
    groups_per_token: Count = 1


Attention = Annotated[MLA | GQA, ByKind((("mla", MLA), ("gqa", GQA)))]
Ffn = Annotated[DenseFFN | MoEFFN, ByKind((("dense", DenseFFN), ("moe", MoEFFN)))]


class LayerRun(Spec):
    """`count` equal layers in a row, each with these attentions and feed-forward networks."""

    count: Count
    attention: tuple[Text, ...]
    ffn: tuple[Text, ...]


class Mtp(Spec):
    """Multi-token prediction: its own layers, and how often each drafted position is accepted."""

    layers: Count
    attention: Text
    ffn: Text
    max_draft: Count
    acceptance: Figure[Fraction]


class Weights(Spec):
    """Dtype of each part as the checkpoint stores it; a part that is not named has the default."""

    default: WeightDtype
    block: tuple[Count, Count] | None = field(default=None, description="elements that share one scale")
    group: Count | None = field(default=None, description="elements along K that share one scale")
    scale_bytes: Count = 4
    embedding: WeightDtype | None = "bf16"
    lm_head: WeightDtype | None = "bf16"
    router: WeightDtype | None = "bf16"
    attention: WeightDtype | None = None
    dense: WeightDtype | None = None
    routed: WeightDtype | None = None
    shared: WeightDtype | None = None
    indexer: WeightDtype | None = None
    mtp: WeightDtype | None = None


class Published(Spec):
    """Totals as the authors state them, multi-token prediction apart."""

    params_total: Figure[Parameters]
    params_active: Figure[Parameters] | None = None


class Model(Spec):
    """Shapes of a decoder: named attention and feed-forward kinds, and the order in which layers use them."""

    kind: Literal["model"]
    name: Text
    title: Text
    source: Text
    served_names: tuple[Text, ...] = field(default=(), description="names it is published under")
    notes: tuple[Text, ...] = ()
    published: Published | None = None
    hidden_size: Count
    vocab_size: Count
    max_position: Count
    tied_embeddings: Flag = False
    attention: Annotated[dict[Text, Attention], AtLeast(1)]
    ffn: Annotated[dict[Text, Ffn], AtLeast(1)]
    layers: Annotated[tuple[LayerRun, ...], AtLeast(1)]
    mtp: Mtp | None = None
    weights: Weights

    _origin = ""

    @property
    def origin(self) -> str:
        """The file this model was read from."""
        return self._origin

    def weight_dtype(self, part: str) -> str:
        """Dtype in which the checkpoint stores this part of the model."""
        return getattr(self.weights, part) or self.weights.default

    @property
    def layer_count(self) -> int:
        """Layers from the embedding to the head, multi-token prediction apart."""
        return sum(run.count for run in self.layers)

    def check(self) -> None:
        if found := list(self.contradictions(self.model_dump(by_alias=True))):
            raise contradiction(found)

    @staticmethod
    def contradictions(data: dict[str, Any]) -> Iterator[Contradiction]:
        """Parts of a model's data that do not fit each other, from the data as written."""
        yield from _unknown_kinds(data)
        for name, ffn in _mapping(data.get("ffn")).items():
            yield from _expert_counts(("ffn", name), _mapping(ffn))
        for name, attention in _mapping(data.get("attention")).items():
            heads, kv_heads = _mapping(attention).get("heads"), _mapping(attention).get("kv_heads")
            if _is_count(heads) and _is_count(kv_heads) and heads % kv_heads:
                message = f"{heads} heads cannot share {kv_heads} KV heads evenly"
                yield ("attention", name, "kv_heads"), message, f"a divisor of {heads}", ()


def _unknown_kinds(data: dict[str, Any]) -> Iterator[Contradiction]:
    for part in ("attention", "ffn"):
        names = [str(name) for name in _mapping(data.get(part))]
        uses = list(_uses(data, part))
        unknown = [(path, name) for path, name in uses if name not in names]
        for path, name in unknown:
            yield path, f"no {part} kind is named '{name}'", _one_of(names), tuple(names)
        if uses and not unknown:  # else the kind that no layer uses is the one that was misspelt
            for name in names:
                if name not in (used for _, used in uses):
                    yield (part, name), "is used by no layer", "a layer that names it", ()


def _uses(data: dict[str, Any], part: str) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Where a schedule names kinds of attention or of feed-forward networks."""
    runs = data.get("layers")
    for i, run in enumerate(runs if isinstance(runs, list | tuple) else []):
        listed = _mapping(run).get(part)
        for j, name in enumerate(listed if isinstance(listed, list | tuple) else []):
            if isinstance(name, str):
                yield ("layers", i, part, j), name
    if isinstance(name := _mapping(data.get("mtp")).get(part), str):
        yield ("mtp", part), name


def _expert_counts(path: tuple[str | int, ...], ffn: dict[str, Any]) -> Iterator[Contradiction]:
    experts, chosen = ffn.get("experts"), ffn.get("experts_per_token")
    zero = ffn.get("zero_experts", 0)
    if _is_count(experts) and _is_count(chosen) and isinstance(zero, int) and chosen > experts + zero:
        message = f"a token cannot choose {chosen} of {experts + zero} experts"
        yield (*path, "experts_per_token"), message, f"at most {experts + zero}", ()
    groups, groups_chosen = ffn.get("groups"), ffn.get("groups_per_token")
    if _is_count(groups) and _is_count(groups_chosen) and groups_chosen > groups:
        message = f"a token cannot choose {groups_chosen} of {groups} groups"
        yield (*path, "groups_per_token"), message, f"at most {groups}", ()
    if _is_count(experts) and _is_count(groups) and experts % groups:
        message = f"{experts} experts do not split into {groups} equal groups"
        yield (*path, "groups"), message, f"a divisor of {experts}", ()
    shared, size = ffn.get("shared_experts", 0), ffn.get("shared_intermediate_size", 0)
    if isinstance(shared, int) and isinstance(size, int) and bool(shared) != bool(size):
        message = "shared_experts and shared_intermediate_size must both be given, or neither"
        yield path, message, "the number of shared experts and their total intermediate size", ()


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _one_of(names: list[str]) -> str:
    return f"one of {', '.join(names)}" if names else "a named kind"
