"""States that obey an equation of evolution exactly."""
