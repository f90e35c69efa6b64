"""What a tenant and a key may do: limits by dimension, who set them, and the gate that holds requests to them."""
