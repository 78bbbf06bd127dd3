"""Parameters of a model, matrix by matrix: what is stored, what one token uses, how each matrix divides.

A matrix is (rows, cols, part, split): `part` names the quantisation class (attention, dense, routed, shared,
router, indexer, embedding, lm_head, norm), `split` who divides it: "tp" (heads or columns over attention tensor
parallel ranks), "none" (every rank keeps it whole), "moe" (experts over EP x MoE-TP ranks). The latent
down-projections q_a and kv_a are not divided, since every rank needs the whole latent; engines replicate them.
Norm vectors and the router's bias are counted, they are below 0.01 % of the total.
Source: DeepSeek-V2, arXiv:2405.04434, sec. 2.1 and appendix C; DeepSeek-V3, arXiv:2412.19437, sec. 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mlaplan.specs.model import Model


class Matrix(NamedTuple):
    """`copies` matrices of rows x cols in one block; `used` of them serve one token (experts: the routed ones)."""

    name: str
    rows: int
    cols: int
    part: str
    split: str
    copies: int = 1
    used: float = 1.0

    @property
    def params(self) -> int:
        return self.rows * self.cols * self.copies

    @property
    def active(self) -> float:
        return self.rows * self.cols * self.used


def attention_matrices(model: Model, kind: str) -> list[Matrix]:
    """The weights of one attention block of the named kind."""
    a, hidden = model.attention[kind], model.hidden_size
    if a.kind == "gqa":
        q_out, kv_out = a.heads * a.head_dim, a.kv_heads * a.head_dim
        bias = (q_out + 2 * kv_out) if a.qkv_bias else 0
        norms = 2 * a.head_dim if a.qk_norm else 0
        return [
            Matrix("q_proj", hidden, q_out, "attention", "tp"),
            Matrix("kv_proj", hidden, 2 * kv_out, "attention", "kv"),
            Matrix("o_proj", q_out, hidden, "attention", "tp"),
            Matrix("norm", 1, hidden + norms + bias, "norm", "none"),
        ]
    qk_dim = a.qk_nope_head_dim + a.qk_rope_head_dim
    out: list[Matrix] = []
    if a.q_lora_rank:
        out += [
            Matrix("q_a", hidden, a.q_lora_rank, "attention", "none"),
            Matrix("q_b", a.q_lora_rank, a.heads * qk_dim, "attention", "tp"),
        ]
    else:
        out.append(Matrix("q_proj", hidden, a.heads * qk_dim, "attention", "tp"))
    out += [
        Matrix("kv_a", hidden, a.kv_lora_rank + a.qk_rope_head_dim, "attention", "none"),
        Matrix("kv_b", a.kv_lora_rank, a.heads * (a.qk_nope_head_dim + a.v_head_dim), "attention", "tp"),
        Matrix("o_proj", a.heads * a.v_head_dim, hidden, "attention", "tp"),
        Matrix("norm", 1, hidden + (a.q_lora_rank or 0) + a.kv_lora_rank, "norm", "none"),
    ]
    if a.sparse and a.sparse.indexer:
        ix = a.sparse.indexer
        q_in = a.q_lora_rank or hidden
        # every rank scores all tokens with all indexer heads, so the indexer is replicated
        out += [
            Matrix("indexer_q", q_in, ix.heads * ix.head_dim, "indexer", "none"),
            Matrix("indexer_k", hidden, ix.head_dim, "indexer", "none"),
            Matrix("indexer_weights", hidden, ix.heads, "router", "none"),
            Matrix("indexer_norm", 1, 2 * ix.head_dim, "norm", "none"),
        ]
    return out


def ffn_matrices(model: Model, kind: str) -> list[Matrix]:
    """The weights of one feed-forward block of the named kind: gated (up, gate, down)."""
    f, hidden = model.ffn[kind], model.hidden_size
    norm = Matrix("norm", 1, hidden, "norm", "none")
    if f.kind == "dense":
        return [Matrix("dense_ffn", hidden, 3 * f.intermediate_size, "dense", "tp"), norm]
    used = routed_per_token(f)
    out = [
        Matrix("router", hidden, f.experts + f.zero_experts, "router", "none"),
        Matrix("experts", hidden, 3 * f.intermediate_size, "routed", "moe", f.experts, used),
        norm,
    ]
    if f.shared_experts:
        out.append(Matrix("shared_experts", hidden, 3 * f.shared_intermediate_size, "shared", "tp"))
    return out


def routed_per_token(moe: object) -> float:
    """Experts with weights that one token visits on average: k E / (E + Z).

    Z zero-computation experts take their share of the k choices and cost nothing.
    Source: LongCat-Flash, arXiv:2509.01322, sec. 2.
    """
    k, e, z = moe.experts_per_token, moe.experts, moe.zero_experts  # type: ignore[attr-defined]
    return k * e / (e + z)


def mtp_matrices(model: Model) -> list[Matrix]:
    """One multi-token-prediction layer: a whole layer and the projection of [hidden; embedding]."""
    if model.mtp is None:
        return []
    hidden = model.hidden_size
    return [
        *attention_matrices(model, model.mtp.attention),
        *ffn_matrices(model, model.mtp.ffn),
        Matrix("mtp_proj", 2 * hidden, hidden, "mtp", "none"),
        Matrix("norm", 1, 3 * hidden, "norm", "none"),
    ]


def blocks(model: Model) -> list[tuple[int, list[Matrix]]]:
    """(count, matrices of one layer) over the schedule, embedding and head apart."""
    out = []
    for run in model.layers:
        matrices: list[Matrix] = []
        for kind in run.attention:
            matrices += attention_matrices(model, kind)
        for kind in run.ffn:
            matrices += ffn_matrices(model, kind)
        out.append((run.count, matrices))
    return out


def params_total(model: Model) -> int:
    """All parameters but those of MTP layers."""
    return _count(model)[0]


def params_active(model: Model) -> float:
    """Parameters that multiply one token: routed experts k of E, the head counted, the input embedding not."""
    return _count(model)[1]


def breakdown(model: Model) -> dict[str, int]:
    """Parameters by part (attention, dense, routed, shared, router, indexer, norm, embedding, lm_head, mtp)."""
    return {**_count(model)[2], "mtp": mtp_params(model)}


def mtp_params(model: Model) -> int:
    """Parameters of the MTP layers; the embedding and the head are shared with the main model."""
    return (model.mtp.layers if model.mtp else 0) * sum(m.params for m in mtp_matrices(model))


def _count(model: Model) -> tuple[int, float, dict[str, int]]:
    groups: dict[str, int] = {}
    total, active = 0, 0.0
    for count, matrices in blocks(model):
        for m in matrices:
            total += count * m.params
            active += count * m.active
            groups[m.part] = groups.get(m.part, 0) + count * m.params
    embedding = model.vocab_size * model.hidden_size
    groups["embedding"] = embedding
    groups["lm_head"] = 0 if model.tied_embeddings else embedding
    groups["norm"] = groups.get("norm", 0) + model.hidden_size
    total += embedding + groups["lm_head"] + model.hidden_size
    active += embedding + model.hidden_size  # the head; the input embedding is a look-up, not a product
    return total, active, groups
