"""Whether the machine, PyTorch and the built library fit together: rules over plain facts."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from typing import Literal

State = Literal["ok", "note", "mismatch"]

OLDEST_TORCH = (2, 11)
OLDEST_CAPABILITY = (8, 0)


@dataclass(frozen=True)
class Gpu:
    name: str
    capability: tuple[int, int]
    memory_bytes: int


@dataclass
class Facts:
    """What was found; None or empty where there is nothing."""

    python: str
    executable: str = "python"
    torch: str | None = None
    torch_error: str | None = None
    torch_cuda: str | None = None
    torch_path: str | None = None
    torch_sees_gpus: bool = False
    cuda_error: str | None = None
    gpus: list[Gpu] = field(default_factory=list)
    driver: str | None = None
    driver_cuda: str | None = None
    package: str | None = None
    checkout: str | None = None  # the repository that the package lies in
    hiding: str | None = None  # a torch_memops in the current folder that is another one
    hiding_built_for: list[str] = field(default_factory=list)
    built_for: list[str] = field(default_factory=list)
    library_cuda: str | None = None
    architectures: list[str] = field(default_factory=list)
    build_error: str | None = None
    imported: bool = False
    import_error: str | None = None
    trials: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    subject: str
    value: str
    state: State = "ok"
    fix: str = ""


def version_pair(text: str) -> tuple[int, int]:
    """The first two numbers of a version: "2.14.1+cu130" -> (2, 14)."""
    major, minor = text.split(".")[:2]
    digits = "".join(c for c in minor if c.isdigit())
    return int(major), int(digits)


def kernels_for(capability: tuple[int, int], architectures: list[str]) -> str | None:
    """How the library serves a GPU: "native", "ptx" (compiled by the driver at first use) or None.

    Binaries run on the same major compute capability with an equal or newer minor one, "a"
    binaries on exactly theirs, PTX ("80-virtual") on everything that is not older.
    """
    found = None
    for name in architectures:
        number, _, kind = name.partition("-")
        exact = number.endswith("a")
        digits = number.rstrip("a")
        built = (int(digits[:-1]), int(digits[-1]))
        if kind == "virtual":
            if capability == built or (not exact and capability > built):
                found = found or "ptx"
        elif capability == built or (
            not exact and capability[0] == built[0] and capability[1] > built[1]
        ):
            found = "native"
    return found


def rebuild(facts: Facts, variables: str = "") -> str:
    """The command that builds the libraries for this Python's PyTorch, where Python finds them."""
    python = shlex.quote(facts.executable)
    if facts.checkout is not None:
        folder = shlex.quote(facts.checkout)
        return f"rebuild: `cd {folder} && {variables}{python} setup.py build_ext --inplace`"
    return (
        f"rebuild: `{variables}{python} -m pip install --no-build-isolation --no-deps "
        "--force-reinstall .` in a checkout of torch_memops"
    )


def diagnose(facts: Facts) -> list[Finding]:
    findings = [Finding("Python", facts.python)]
    findings += _gpu(facts)
    findings += _torch(facts)
    findings += _library(facts)
    findings += _fit(facts)
    findings += _hidden(facts)
    return findings


def _gpu(facts: Facts) -> list[Finding]:
    if not facts.gpus:
        return [Finding("GPU", "none found: the CPU path is what runs here")]
    findings = [
        Finding(
            f"GPU {i}",
            f"{gpu.name}, compute capability {gpu.capability[0]}.{gpu.capability[1]}, "
            f"{gpu.memory_bytes / 2**30:.0f} GiB",
        )
        for i, gpu in enumerate(facts.gpus)
    ]
    newest = f", serves CUDA up to {facts.driver_cuda}" if facts.driver_cuda else ""
    findings.append(Finding("NVIDIA driver", f"{facts.driver or 'version unknown'}{newest}"))
    return findings


def _torch(facts: Facts) -> list[Finding]:
    if facts.torch is None:
        why = facts.torch_error or "it cannot be imported"
        missing = "No module named 'torch'" in why
        return [
            Finding(
                "PyTorch",
                "not installed" if missing else why,
                "mismatch",
                "pip install 'torch>=2.11'" + ("" if missing else " --force-reinstall"),
            )
        ]
    kind = f"for CUDA {facts.torch_cuda}" if facts.torch_cuda else "for the CPU only"
    value = f"{facts.torch} {kind}, {facts.torch_path}"
    if version_pair(facts.torch) < OLDEST_TORCH:
        return [Finding("PyTorch", value, "mismatch", "pip install --upgrade 'torch>=2.11'")]
    findings = [Finding("PyTorch", value)]
    if facts.gpus and facts.torch_cuda is None:
        findings.append(
            Finding(
                "PyTorch and GPU",
                "a GPU is here, and this PyTorch is built without CUDA",
                "mismatch",
                "install a CUDA build of PyTorch (pytorch.org/get-started), then " + rebuild(facts),
            )
        )
    elif facts.gpus and not facts.torch_sees_gpus:
        findings.append(_blind_torch(facts))
    return findings


def _blind_torch(facts: Facts) -> Finding:
    why = facts.cuda_error or "torch.cuda.is_available() is False"
    fix = "check that CUDA_VISIBLE_DEVICES is unset and that `nvidia-smi` works as this user"
    if (
        facts.driver_cuda
        and facts.torch_cuda
        and version_pair(facts.driver_cuda)[0] < version_pair(facts.torch_cuda)[0]
    ):
        fix = (
            f"update the NVIDIA driver to one that serves CUDA {facts.torch_cuda} (this one ends "
            f"at {facts.driver_cuda})"
        )
    return Finding("PyTorch and GPU", f"PyTorch cannot use the GPU: {why}", "mismatch", fix)


def _library(facts: Facts) -> list[Finding]:
    if facts.torch is None:
        return []
    if facts.build_error:
        return [Finding("torch_memops", facts.build_error, "mismatch", rebuild(facts))]
    if facts.package is None:
        return [Finding("torch_memops", "not installed", "mismatch", rebuild(facts))]
    if not facts.built_for:
        return [
            Finding(
                "torch_memops", f"no library in {facts.package}/lib", "mismatch", rebuild(facts)
            )
        ]
    cuda = (
        f"CUDA {facts.library_cuda} ({', '.join(facts.architectures)})"
        if facts.library_cuda
        else "the CPU only"
    )
    value = f"built for PyTorch {', '.join(facts.built_for)} and {cuda}, {facts.package}"
    return [Finding("torch_memops", value)]


def _fit(facts: Facts) -> list[Finding]:
    """Whether what is there works together."""
    if facts.torch is None or not facts.built_for:
        return []
    findings = []
    minor = "{}.{}".format(*version_pair(facts.torch))
    if minor not in facts.built_for:
        findings.append(
            Finding(
                "library and PyTorch",
                f"built for {', '.join(facts.built_for)}, and PyTorch is {facts.torch}",
                "mismatch",
                rebuild(facts),
            )
        )
    findings += _fit_cuda(facts)
    if facts.imported:
        findings.append(Finding("import torch_memops", "works"))
    else:
        findings.append(
            Finding(
                "import torch_memops",
                facts.import_error or "the process died without a message",
                "mismatch",
                "" if any(f.state == "mismatch" for f in findings) else rebuild(facts),
            )
        )
    for device, problem in facts.trials.items():
        state: State = "mismatch" if problem else "ok"
        findings.append(Finding(f"an op on {device}", problem or "right result", state))
    return findings


def _hidden(facts: Facts) -> list[Finding]:
    """The torch_memops of the current folder, which `python -c`, `python -m` and notebooks started
    here import instead of the one above."""
    if facts.hiding is None or facts.torch is None:
        return []
    folder = facts.hiding.removesuffix("/torch_memops")
    fits = "{}.{}".format(*version_pair(facts.torch)) in facts.hiding_built_for
    value = "python -c, python -m and notebooks started here import this folder's torch_memops"
    if fits:
        return [Finding("current folder", value, "note")]
    build = rebuild(replace(facts, checkout=folder)).removeprefix("rebuild: ")
    return [
        Finding(
            "current folder",
            f"{value}, which holds no libraries for PyTorch {facts.torch}",
            "mismatch",
            f"start Python in another folder, or build here too: {build}",
        )
    ]


def _fit_cuda(facts: Facts) -> list[Finding]:
    if facts.library_cuda is None:
        if facts.gpus and facts.torch_cuda:
            return [
                Finding(
                    "library and GPU",
                    "a GPU is here, and the library is built without CUDA kernels",
                    "mismatch",
                    "with nvcc 13.0 on the PATH or from PyPI, " + rebuild(facts, "MEMOPS_CUDA=1 "),
                )
            ]
        return []
    if facts.torch_cuda is None:
        return [
            Finding(
                "library and CUDA",
                f"built for CUDA {facts.library_cuda}; this PyTorch has none, so CPU ops alone run",
                "note",
            )
        ]
    findings = []
    library_major = version_pair(facts.library_cuda)[0]
    if library_major != version_pair(facts.torch_cuda)[0]:
        findings.append(
            Finding(
                "library and CUDA",
                f"built with CUDA {facts.library_cuda}, and PyTorch brings {facts.torch_cuda}",
                "mismatch",
                f"install PyTorch for CUDA {library_major}, or {rebuild(facts)}",
            )
        )
    if facts.gpus and facts.driver_cuda and version_pair(facts.driver_cuda)[0] < library_major:
        findings.append(
            Finding(
                "library and driver",
                f"built with CUDA {facts.library_cuda}, and the driver ends at {facts.driver_cuda}",
                "mismatch",
                f"update the NVIDIA driver to one that serves CUDA {library_major}",
            )
        )
    findings += [_fit_gpu(i, gpu, facts) for i, gpu in enumerate(facts.gpus)]
    return findings


def _fit_gpu(index: int, gpu: Gpu, facts: Facts) -> Finding:
    subject = f"library and GPU {index}"
    if gpu.capability < OLDEST_CAPABILITY:
        return Finding(
            subject,
            f"{gpu.name} has compute capability {gpu.capability[0]}.{gpu.capability[1]}; the "
            "kernels need 8.0 or newer",
            "mismatch",
            "use CPU tensors on this machine, or a GPU of the Ampere generation or newer",
        )
    how = kernels_for(gpu.capability, facts.architectures)
    if how == "native":
        hopper = gpu.capability == (9, 0) and "90a" not in facts.architectures
        if not hopper:
            return Finding(subject, "the library holds this GPU's kernels")
    if how is None:
        return Finding(
            subject,
            f"no kernel for compute capability {gpu.capability[0]}.{gpu.capability[1]}",
            "mismatch",
            rebuild(facts, f"TORCH_CUDA_ARCH_LIST={gpu.capability[0]}.{gpu.capability[1]} "),
        )
    if gpu.capability == (9, 0):
        return Finding(
            subject,
            "the kernels for Hopper are left out; the portable ones run",
            "note",
            rebuild(facts, "TORCH_CUDA_ARCH_LIST='8.0+PTX;9.0a' "),
        )
    return Finding(
        subject, "the driver compiles the portable kernels for it at first use (PTX)", "note"
    )
