"""What an adapter_config.json says: the verdict on every field, and the settings of an adapter that is served."""
