"""The addresses of the gateway: one table, and one file for each family of them."""
