"""Who may hold memory, and how much: integers only. The bytes live in `execution.kv_cache` and `lora.arena`."""
