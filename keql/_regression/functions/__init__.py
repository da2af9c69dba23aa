"""Elementary functions among the terms of evolution equations."""
