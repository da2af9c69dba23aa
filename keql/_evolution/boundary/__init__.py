"""Values at the boundary of exact states: their prior, and what data say of them."""
