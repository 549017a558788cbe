"""Split text into documents and words."""
