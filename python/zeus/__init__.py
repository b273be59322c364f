"""Measures and lowers the energy of deep learning."""

import logging
import os

TYPE_CHECKING = False  # The typing module costs more than all the rest of this one.
if TYPE_CHECKING:
    from zeus._measure import measure as measure

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())


def _upstream_beside() -> bool:
    """Whether upstream's distribution of the same modules is installed in the same folder."""
    try:
        names = os.listdir(os.path.dirname(os.path.dirname(__file__)))
    except OSError:  # In an archive, where nobody else's files can be.
        return False
    return any(name.startswith("zeus-") and name.endswith(".dist-info") for name in names)


if _upstream_beside():
    import warnings

    warnings.warn(
        "the distributions zeus and zeus-cpp are both installed here, and have overwritten each "
        "other's files; run: pip uninstall zeus zeus-cpp, then install the one that you want",
        stacklevel=2,
    )

if not TYPE_CHECKING:

    def __getattr__(name):
        # `import zeus` loads nothing else; the first use of this does.
        if name != "measure":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from zeus._measure import measure

        globals()[name] = measure
        return measure
