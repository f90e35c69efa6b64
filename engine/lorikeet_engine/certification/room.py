"""What fits into the certifier's memory beside one adapter: the base model twice, once, or only its embedding.

Estimates, all of float32: what they leave out, libraries and activations, has a fixed allowance.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lorikeet_adapters.errors import AdapterRejected
from lorikeet_engine.certification.compared.streamed import Checkpoint
from lorikeet_engine.model_spec import load_model_spec

FLOAT32_BYTES: Final = 4
WORKSPACE_BYTES: Final = 1536 << 20  # libraries and activations


@dataclass(frozen=True, slots=True)
class Room:
    """
    Attributes:
        free_bytes: for the model and the adapter.
        model_bytes: of the whole model.
        embedding_bytes: what is held of a model whose linears are read from their files.
    """

    free_bytes: int
    model_bytes: int
    embedding_bytes: int

    @classmethod
    def for_model(cls, model_dir: Path, memory_bytes: int) -> Room:
        """In a process that may have `memory_bytes`; raises MemoryError where no adapter would fit."""
        checkpoint, spec = Checkpoint(model_dir), load_model_spec(model_dir)
        embedding = FLOAT32_BYTES * spec.vocab * spec.hidden
        # Ours has an embedding and a head even where they are one tensor.
        model = FLOAT32_BYTES * checkpoint.n_elements + (embedding if spec.tied_embeddings else 0)
        free = memory_bytes - WORKSPACE_BYTES
        if free <= embedding:
            raise MemoryError(f"{memory_bytes} bytes have no room for the base model's embedding")
        return cls(free, model, embedding)

    def copies_beside(self, file_bytes: int, extent_bytes: int) -> int:
        """How often the model is held: twice, ours and PEFT's, or once, or 0 when it is read from its files.

        Raises:
            AdapterRejected: the normalised file and the packed extent have no room even then.
        """
        # The file is there while it is packed; the extent then, and once more in the arena.
        ours = file_bytes + 2 * extent_bytes
        for copies, needed in ((2, ours + extent_bytes + 2 * self.model_bytes), (1, ours + self.model_bytes)):
            if needed <= self.free_bytes:
                return copies
        left = self.free_bytes - self.embedding_bytes
        if ours > left:
            raise AdapterRejected(
                "adapter_too_large",
                subject="the adapter",
                found=f"{ours} bytes to compute with",
                allowed=f"at most {left} bytes: it as a file and twice in float32",
            )
        return 0
