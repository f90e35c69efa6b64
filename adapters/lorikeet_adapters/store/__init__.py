"""Where blobs are kept: a port, and its implementations in a local directory and in an S3 bucket."""
