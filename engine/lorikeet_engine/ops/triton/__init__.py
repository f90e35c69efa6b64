"""The GPU's kernels, in Triton: one file per kernel family, each with a launcher that takes torch tensors."""
