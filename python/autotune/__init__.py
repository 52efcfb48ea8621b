"""Networks on kernels that are tuned for this machine.

    import autotune

    network = autotune.load("model.onnx")
    outputs = network(x)

``network.tune("60s")`` makes it faster, ``network.profile()`` shows where its time goes, and
``network.compile("model.so")`` writes a library for other languages. :func:`add_provider` lets
sessions of ONNX Runtime run on the same kernels. ``python -m autotune`` is the command ``autotune``.

A process that forks may run a network in the child, unless another thread of the parent was making
one at that time.
"""

from ._autotune import NETWORKS, __version__
from ._errors import CommandError, DatabaseError, Error, ModelError, OptionError, ShapeError
from ._network import Input, Network, load
from ._operators import best, tune, write_snapshot
from ._provider import PROVIDER, add_provider, provider_library
from ._reports import Profile, TuneReport

__all__ = [
    "CommandError",
    "DatabaseError",
    "Error",
    "Input",
    "ModelError",
    "NETWORKS",
    "Network",
    "OptionError",
    "PROVIDER",
    "Profile",
    "ShapeError",
    "TuneReport",
    "__version__",
    "add_provider",
    "best",
    "load",
    "provider_library",
    "tune",
    "write_snapshot",
]
