"""Which AMD GPUs a process sees: ROCR_VISIBLE_DEVICES, then HIP_ or CUDA_VISIBLE_DEVICES.

The ROCm runtime filters by the first list; HIP numbers what is left and filters again by the
second, as in "GPU isolation techniques" of AMD's ROCm documentation.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from zeus.device.gpu.common import ZeusGPUInitError

logger = logging.getLogger(__name__)


def visible_hip_indices(
    environ: Mapping[str, str], hip_indices: list[int], uuid_of: Callable[[int], str | None]
) -> list[int]:
    """HIP indices (of the whole machine) that a HIP program would call 0, 1, 2, ...

    Args:
        environ: The environment.
        hip_indices: Every GPU of the machine by its HIP index, in order.
        uuid_of: A GPU's UUID (hexadecimal digits), or None where it has none.

    Raises:
        ZeusGPUInitError: a list hides every GPU, names one twice, or is not understood.
    """
    visible = hip_indices
    if "ROCR_VISIBLE_DEVICES" in environ:
        visible = _filtered("ROCR_VISIBLE_DEVICES", environ, visible, uuid_of)
    for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        if name in environ:
            return _filtered(name, environ, visible, uuid_of)
    return visible


def _filtered(
    name: str,
    environ: Mapping[str, str],
    candidates: list[int],
    uuid_of: Callable[[int], str | None],
) -> list[int]:
    """The candidates that one list keeps; the runtimes stop at the first entry that is none."""
    text = environ[name]
    kept: list[int] = []
    for entry in (part.strip() for part in text.split(",")):
        gpu = _find(name, entry, candidates, uuid_of)
        if gpu is None:
            if entry:
                logger.warning(
                    "%s=%r: %r is no visible GPU, the list ends there", name, text, entry
                )
            break
        if gpu in kept:
            raise ZeusGPUInitError(f"cannot use {name}={text!r}: it names GPU {gpu} twice")
        kept.append(gpu)
    if not kept:
        raise ZeusGPUInitError(f"no GPU is visible: {name}={text!r} hides all {len(candidates)}")
    return kept


def _find(
    name: str, entry: str, candidates: list[int], uuid_of: Callable[[int], str | None]
) -> int | None:
    if entry.lower().startswith("gpu-"):
        wanted = entry[4:].lower()
        matches = [gpu for gpu in candidates if (uuid_of(gpu) or "").lower() == wanted]
        return matches[0] if len(matches) == 1 else None
    if not entry or entry == "-1":
        return None
    try:
        position = int(entry)
    except ValueError:
        raise ZeusGPUInitError(
            f"cannot use {name}: {entry!r} is neither an index nor GPU-<uuid>"
        ) from None
    return candidates[position] if 0 <= position < len(candidates) else None
