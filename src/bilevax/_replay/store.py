"""Where the states at the boundaries of segments are kept."""

import dataclasses
import math
import os

from .._errors import check, checkpoints


@dataclasses.dataclass(frozen=True)
class Store:
    """Where `replay` keeps states. With a folder, a call that was killed can go on.

    **Arguments:**

    - `directory`: a folder for the tape of this call alone. Every state that is kept is there, and
        a call that was killed goes on from it. Default: no folder, host memory only.
    - `host`: how many bytes of host memory the states may take. Those that do not fit are read
        from the folder; without a folder they are computed again.
    - `keep`: leave the last files in the folder, so that the same call answers at once.

    !!! example

        >>> import bilevax as bx
        >>> bx.Store("tape", host=8e9)
        Store(directory='tape', host=8000000000.0, keep=False)
    """

    directory: str | os.PathLike | None = None
    host: float = 4e9
    keep: bool = False

    def __post_init__(self):
        if self.directory is not None:
            checkpoints.directory(self.directory)
        if self.host != math.inf:
            check.positive(self.host, "host", "give a number of bytes, as in host=8e9")
