"""What the tensors of an adapter must be: their names, their pairs, and that the configuration does not contradict."""
