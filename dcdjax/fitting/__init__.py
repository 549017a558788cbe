"""Run the whole way from a corpus to an embedding."""
