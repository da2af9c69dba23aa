"""What was measured: columns, values of each function, collocation points."""
