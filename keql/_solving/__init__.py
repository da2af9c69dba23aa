"""The equation is known, the state is sought."""
