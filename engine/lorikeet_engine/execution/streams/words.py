"""The words of a step, from the host to a device in one copy that nobody waits for.

The host writes into one of two pinned buffers while the copy out of the other may still be under way; one that a copy
has not left yet is waited for. On the device one set of words for each kept step is enough, since copies and steps are
in one lane.
"""

from __future__ import annotations

from functools import partial

import torch

from lorikeet_engine.execution.streams.lanes import PASSED, Lane, Lanes, Mark


class PinnedFeed:
    """A `WordFeed` by way of pinned memory."""

    in_place = False

    def __init__(self, lanes: Lanes, device: torch.device | str, n_buffers: int = 2) -> None:
        self._lanes = lanes
        self._device = torch.device(device)
        self._buffers = [torch.empty(0, dtype=torch.int64)] * n_buffers
        self._copied: list[Mark] = [PASSED] * n_buffers  # the last copy out of each
        self._turn = 0

    def words(self, n: int) -> torch.Tensor:
        return torch.zeros(n, dtype=torch.int64, device=self._device)

    def host(self, words: torch.Tensor) -> torch.Tensor:
        """The start of the next buffer; it grows by doubling, so seldom."""
        n = words.numel()
        self._copied[self._turn].wait()
        if self._buffers[self._turn].numel() < n:
            size = max(n, 2 * self._buffers[self._turn].numel())
            self._buffers[self._turn] = torch.empty(size, dtype=torch.int64, pin_memory=self._device.type != "cpu")
        return self._buffers[self._turn][:n]

    def send(self, host: torch.Tensor, words: torch.Tensor) -> None:
        self._lanes.run(Lane.COMPUTE, partial(words.copy_, host, non_blocking=True))
        self._copied[self._turn] = self._lanes.mark(Lane.COMPUTE)
        self._turn = (self._turn + 1) % len(self._buffers)
