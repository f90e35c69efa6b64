"""Telemetry: the gateway's metrics and the structured log."""
