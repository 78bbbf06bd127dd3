"""What may not be pinned: degrees that no structure has, and dtypes and drafts that have no meaning for a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mlaplan.errors import MlaplanError

if TYPE_CHECKING:
    from mlaplan.specs.model import Model


def check_layout(flags: Mapping[str, Any]) -> None:
    """Refuses a KV layout that decode context parallelism contradicts."""
    dcp, layout = flags.get("dcp"), flags.get("kv_layout")
    if dcp is None or layout is None:
        return
    if (dcp > 1) != (layout == "sequence_sharded"):
        word = layout.replace("_", "-")
        wanted = "--dcp 1" if layout != "sequence_sharded" else "--dcp above 1"
        raise MlaplanError(f"--kv-layout {word} goes with {wanted}, not with --dcp {dcp}")


def check_pins(flags: Mapping[str, Any], devices: int) -> None:
    """Refuses pins that no structure on so many chips has."""
    pinned = {name: flags[name] for name in ("replicas", "pp", "dp", "tp") if name in flags}
    product = 1
    for degree in pinned.values():
        product *= degree
    words = " x ".join(f"--{name} {degree}" for name, degree in pinned.items())
    if devices % product:
        shown = f"{words} = {product}" if len(pinned) > 1 else words
        raise MlaplanError(f"{shown} does not divide --devices {devices}")
    if len(pinned) == 4 and product != devices:
        raise MlaplanError(f"{words} = {product} chips are not the {devices} of --devices")
    ep = flags.get("ep", 1)
    if devices % ep:
        raise MlaplanError(f"--ep {ep} does not divide --devices {devices}")
    for name in ("dcp", "cp"):
        if name in flags and "tp" in flags and flags["tp"] % flags[name]:
            raise MlaplanError(f"--{name} {flags[name]} does not divide --tp {flags['tp']}")


def check_precision(model: Model, flags: Mapping[str, Any]) -> None:
    """Refuses dtypes that have no meaning for this model."""
    from mlaplan.costs.precision import SIXTEEN_BIT, quantised

    wanted, own = flags.get("weight_dtype"), quantised(model)
    if wanted is not None and wanted not in (own, *SIXTEEN_BIT) and own in SIXTEEN_BIT:
        raise MlaplanError(
            f"--weight-dtype {wanted}: the checkpoint of {model.name} is {own}, and quantising it is not modelled"
        )
    cache = flags.get("kv_dtype")
    if cache == "fp8_ds_mla" and any(a.kind != "mla" for a in model.attention.values()):
        raise MlaplanError(f"--kv-dtype {cache}: {model.name} caches no latent")


def check_drafts(model: Model, mtp: int | None, mtp_accept: float | None) -> None:
    """Refuses drafts from a model without MTP layers, and more accepted tokens than were drafted."""
    if model.mtp is None and mtp:
        raise MlaplanError(f"--mtp {mtp}: {model.name} has no MTP layer")
    if mtp_accept is None:
        return
    if model.mtp is None or mtp == 0:
        why = f"{model.name} has no MTP layer" if model.mtp is None else "--mtp 0 drafts nothing"
        raise MlaplanError(f"--mtp-accept {mtp_accept:g}: {why}")
    depth = model.mtp.max_draft if mtp is None else mtp
    if mtp_accept > 1 + depth:
        raise MlaplanError(f"--mtp-accept {mtp_accept:g}: a step with {depth} drafts yields at most {1 + depth} tokens")
