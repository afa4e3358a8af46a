"""What a running gateway shows of itself: log, metrics, rows of traffic, X-ray."""
