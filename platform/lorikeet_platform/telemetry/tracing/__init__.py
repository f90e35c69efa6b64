"""Traces of requests: their phases as spans, handed to OpenTelemetry where an operator wants them."""
