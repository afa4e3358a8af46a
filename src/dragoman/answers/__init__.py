"""Reply -> Reply, event -> events: what is put right in an answer before the client sees it."""
