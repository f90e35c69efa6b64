"""The HTTP edge: bounds, strict JSON, one error shape, health, metrics, the dashboard's files."""
