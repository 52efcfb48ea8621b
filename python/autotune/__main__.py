"""``python -m autotune`` is the command ``autotune``."""

import sys

from ._command import become
from ._errors import CommandError


def main() -> None:
    try:
        become(sys.argv[1:])
    except CommandError as error:
        sys.exit(f"autotune: {error}")


if __name__ == "__main__":
    main()
