"""The two sides of a comparison: our decoder and PEFT's, what both are asked, and who sits beside the adapter."""
