"""Helpers that the tests share: devices, tensors with chosen layouts, references, samples."""
