"""What requests have used, until somebody has put it on record."""
