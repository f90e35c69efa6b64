"""From a step's logits to its tokens, where the host reads them or where the device does."""
