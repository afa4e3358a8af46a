"""What the gateway keeps over a restart: keys, stored responses, reasoning state."""
