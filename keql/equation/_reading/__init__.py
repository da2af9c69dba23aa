"""What there is to read of a learned equation: its terms, and a formula for it."""
