"""Identity by tokens of an OpenID Connect provider, beside the gateway's own keys."""
