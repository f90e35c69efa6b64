"""The gate that requests pass: rates and places taken, given back, and told in headers."""
