"""PostgreSQL: keys, teams, budgets, the ledger and stored responses of gateways on many machines."""
