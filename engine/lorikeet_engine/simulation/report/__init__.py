"""What a simulation showed: recorded while it runs, summed up at its end, drawn on a page."""
