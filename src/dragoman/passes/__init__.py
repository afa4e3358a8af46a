"""Passes: each changes a Request so that its target accepts it. A pass is pure, deterministic and idempotent."""
