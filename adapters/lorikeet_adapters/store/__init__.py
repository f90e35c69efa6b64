"""Where blobs are kept: a port, and its implementation in a local directory."""
