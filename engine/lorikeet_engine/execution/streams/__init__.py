"""Work that a device does beside the host and beside itself: lanes, and the fences between them."""
