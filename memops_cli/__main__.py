"""`python -m memops_cli`: the same as `memops`."""

from memops_cli import main

main(prog_name="memops")
