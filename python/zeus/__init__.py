"""Measures and lowers the energy of deep learning."""

import logging

TYPE_CHECKING = False  # The typing module costs more than all the rest of this one.
if TYPE_CHECKING:
    from zeus._measure import measure as measure

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())

if not TYPE_CHECKING:

    def __getattr__(name):
        # `import zeus` loads nothing else; the first use of this does.
        if name != "measure":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from zeus._measure import measure

        globals()[name] = measure
        return measure
