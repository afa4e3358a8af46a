"""JSON Schemas of tools and answers, in the schema language of the target."""
