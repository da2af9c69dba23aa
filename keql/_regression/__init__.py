"""States without their equation: kernel regression and the priors it needs."""
