"""States and equations that searches begin with, where two steps know too little."""
