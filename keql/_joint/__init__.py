"""States and equation together, the equation imposed at collocation points."""
