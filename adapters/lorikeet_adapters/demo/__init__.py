"""Three small trained adapters that show what Lorikeet does: their styles, texts, training script and weights."""
