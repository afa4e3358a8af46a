"""The life of the process: start, workers, reload, shutdown."""
