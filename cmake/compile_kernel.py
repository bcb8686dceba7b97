"""Runs nvcc on one kernel file, keeps ptxas's resource report and refuses what costs speed.

Usage: compile_kernel.py --report FILE -- nvcc ARGUMENTS...

The build fails, besides nvcc's own errors, when ptxas reports spills or says that it serialised
wgmma instructions (C7510, C7511) or ignored setmaxnreg (C7504, C7507, C7508).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

REFUSED_WARNINGS = re.compile(r"C75(04|07|08|09|10|11)")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


def refusals(report: str) -> list[str]:
    """The lines of a ptxas report that must fail the build, each with its kernel's name."""
    found = []
    kernel = "?"
    for line in report.splitlines():
        name = re.search(r"Function properties for (\S+)", line)
        if name:
            kernel = name.group(1)
        spills = SPILLS.search(line)
        if spills and spills.groups() != ("0", "0"):
            found.append(f"{kernel}: {line.strip()}")
        elif REFUSED_WARNINGS.search(line):
            found.append(line.strip())
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, required=True, help="where ptxas's report goes")
    parser.add_argument("command", nargs="+", help="nvcc and its arguments, after --")
    arguments = parser.parse_args()
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    result = subprocess.run(arguments.command, stderr=subprocess.PIPE, text=True)
    arguments.report.write_text(result.stderr)
    if result.returncode:
        sys.stderr.write(result.stderr)
        return result.returncode
    found = refusals(result.stderr)
    if found:
        object_file = arguments.command[arguments.command.index("-o") + 1]
        Path(object_file).unlink(missing_ok=True)
        sys.stderr.write("refused by cmake/compile_kernel.py:\n" + "\n".join(found) + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
