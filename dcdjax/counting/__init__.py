"""Count which words stand near each other, exactly and within a limit of memory."""
