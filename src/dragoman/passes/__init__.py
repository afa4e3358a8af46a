"""Request -> Request: what a target needs before it can say a conversation. Pure, idempotent, deterministic."""
