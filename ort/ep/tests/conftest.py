"""Registers the execution provider once."""

import onnxruntime
import pytest
from sessions import LIBRARY


@pytest.fixture(scope="session", autouse=True)
def registered():
    onnxruntime.register_execution_provider_library("autotune", LIBRARY)
