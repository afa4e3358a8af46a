"""dragoman speaks every LLM wire protocol: it converts between them and says what got lost."""

__version__ = "0.1.0"

__all__ = ["__version__"]
