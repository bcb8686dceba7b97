"""Markers, devices and the state that every test starts from."""

import os
from collections.abc import Iterator

import hypothesis
import pytest
import torch
from support.devices import DEVICES

hypothesis.settings.register_profile(
    "quick",
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(hypothesis.HealthCheck),
)
hypothesis.settings.register_profile(
    "thorough",
    max_examples=1000,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)


def pytest_configure() -> None:
    """Load the hypothesis profile named by HYPOTHESIS_PROFILE."""
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave Inductor out where it cannot link: before 2.14 it did not quote its own path."""
    release = tuple(map(int, torch.__version__.split(".")[:2]))
    if release >= (2, 14) or " " not in torch.__file__:
        return
    skip = pytest.mark.skip(reason="Inductor of this PyTorch cannot link from a path with a space")
    for item in items:
        if "inductor" in item.nodeid:
            item.add_marker(skip)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests marked `cuda` where there is no GPU; fail them where only the kernels are missing."""
    if item.get_closest_marker("cuda") is None:
        return
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no CUDA device on this machine")
    import torch_memops

    if not torch_memops.cuda_available():
        pytest.fail("PyTorch sees a GPU, but torch_memops was built without CUDA kernels")


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    """Each device that the op runs on; the CUDA parameter carries the marker `cuda`."""
    return request.param


@pytest.fixture(autouse=True)
def _plain_state() -> Iterator[None]:
    """Every test starts with the same seed and with TF32 off."""
    torch.manual_seed(20240229)
    with torch.backends.__allow_nonbracketed_mutation():  # PyTorch's own test helpers forbid it
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """No compiled code from another test: after 8 shapes Dynamo runs eager without a word."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
