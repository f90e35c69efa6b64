"""The platform: who calls, what they may do, what they own, what they used."""
