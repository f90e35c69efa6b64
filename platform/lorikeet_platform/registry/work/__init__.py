"""What workers do for the registry: validate, retire, purge; and the chores that watch stores and aliases."""
