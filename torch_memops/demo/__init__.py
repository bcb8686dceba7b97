"""`memops demo`: every op on a photograph, and a small model trained, each against PyTorch."""
