"""Which terms an equation has: sets of them, solved for and compared."""
