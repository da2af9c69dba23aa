"""What is compared with exact states: other ways to learn, and states alone."""
