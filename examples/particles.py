"""Particles (x, y, z, mass) as an array of structures and as a structure of arrays.

Gathering whole particles wants the array of structures: one particle lies in 16 neighbouring bytes.
Reading one field of all wants the structure of arrays: no byte of the other fields is moved.
"""

import time
from collections.abc import Callable

import torch
from torch import Tensor

import torch_memops


def milliseconds(call: Callable[[], object], device: str, runs: int = 10) -> float:
    """The mean time of a call after one that is not counted."""
    call()
    if device == "cuda":
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(runs):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / runs
    start = time.perf_counter()
    for _ in range(runs):
        call()
    return (time.perf_counter() - start) / runs * 1e3


def total_mass(masses: Tensor) -> float:
    return masses.sum(dtype=torch.float64).item()


def main() -> None:
    device = "cuda" if torch_memops.cuda_available() else "cpu"
    count, chosen = (2**24, 2**22) if device == "cuda" else (2**18, 2**16)
    torch.manual_seed(0)
    aos = torch.rand(count, 4, device=device)  # one row a particle
    soa = torch_memops.aos_to_soa(aos)  # one row a field
    index = torch.randint(count, (chosen,), device=device)

    rows = torch_memops.gather_aos(aos, index)
    columns = torch_memops.gather_soa(soa, index)
    if not torch.equal(torch_memops.soa_to_aos(columns), rows):
        raise SystemExit("the two layouts hold different particles")
    print(f"{chosen} of {count} particles, {device}: both layouts give the same")

    mass_aos, mass_soa = total_mass(aos[:, 3]), total_mass(soa[3])
    if not abs(mass_aos - mass_soa) <= 1e-9 * mass_soa:
        raise SystemExit(f"total mass {mass_aos} and {mass_soa}")

    for name, call in {
        "gather whole particles, AoS": lambda: torch_memops.gather_aos(aos, index),
        "gather whole particles, SoA": lambda: torch_memops.gather_soa(soa, index),
        "read one field of all, AoS": lambda: torch_memops.copy(aos[:, 3]),
        "read one field of all, SoA": lambda: torch_memops.copy(soa[3]),
    }.items():
        print(f"{name}: {milliseconds(call, device):.3f} ms")


if __name__ == "__main__":
    main()
