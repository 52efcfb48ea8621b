from collections.abc import Mapping, Sequence

import numpy as np

NETWORKS: list[str]
__version__: str

class Session:
    name: str
    inputs: list[tuple[str, str]]
    shapes: list[str]
    output_names: list[str]

    def __init__(
        self,
        subject: str,
        *,
        is_file: bool,
        shapes: Mapping[str, str],
        values: Mapping[str, tuple[str, np.ndarray]],
        precision: str,
        max_error: float,
        examples: Mapping[str, tuple[str, np.ndarray]],
        is_dequantised: bool,
        threads: int | None,
        db: str | None,
        spin: bool,
    ) -> None: ...
    def run(self, inputs: Sequence[np.ndarray]) -> list[tuple[str, str, np.ndarray]]: ...
