"""Those who run: who is let in, who has to give way, and the rows of a step."""
