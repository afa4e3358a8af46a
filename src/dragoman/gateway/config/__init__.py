"""dragoman.toml: which keys it has, how it is read, and the settings it becomes."""
