"""What a LoRA adapter is: its files, its checks, its identity by content, and the packed form the engine serves."""
