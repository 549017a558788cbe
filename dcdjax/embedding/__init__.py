"""Answer questions about words and topics from a learned W."""
