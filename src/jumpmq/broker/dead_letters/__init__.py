"""Dead letters: made, published, and tried again where that is asked for."""
