"""A proxy that adds joules to the answers of an OpenAI-style server."""

from zeus.serving.proxy.energy import Overlap
from zeus.serving.proxy.server import Limits, Proxy, Upstream

__all__ = ["Limits", "Overlap", "Proxy", "Upstream"]
