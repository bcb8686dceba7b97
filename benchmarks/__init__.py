"""Benchmarks of torch_memops: the cases, how they are timed, and the report made of the results."""
