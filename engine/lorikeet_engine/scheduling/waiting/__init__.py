"""Those who are not running: who may join the queue, and whose turn it is."""
