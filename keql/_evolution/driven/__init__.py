"""States of ordinary differential equations that white noise drives."""
