"""What a running engine has done, as a model of what it will do: how long steps take, and how far that holds."""
