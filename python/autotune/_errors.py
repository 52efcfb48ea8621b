"""Exceptions of the package."""


class Error(Exception):
    """Base of all exceptions of this package."""


class ModelError(Error):
    """The file is not a model, or has an operator that is not supported; names the node."""


class ShapeError(Error, ValueError):
    """An array does not have the shape that the network needs; names the input."""


class OptionError(Error, ValueError):
    """An argument has no valid value; names the argument."""


class DatabaseError(Error):
    """The tuning database or snapshot cannot be read."""


class CommandError(Error):
    """The command ``autotune`` failed; the text is its last line.

    ``exit_code`` is 1 for a failure and 2 for bad usage.
    """

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code
